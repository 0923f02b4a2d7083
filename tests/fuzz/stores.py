"""Damage a stored graph."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.damage import damage_bytes, damage_tree, to_json
from fuzz.harness import Case

if TYPE_CHECKING:
    from fuzz.inputs import Inputs


def uses(store: Path, run: Path) -> dict[str, list[str]]:
    """Return the commands that use a store, by name."""
    of = ["--graph", str(store), "--json"]
    return {
        "inspect": ["inspect", str(store), "--hops", "2", "--json"],
        "predict": ["predict", str(run), *of],
        "predict one": ["predict", str(run), "--node", "f7", "--node", "Film, 3", *of],
        "explain": ["explain", str(run), "f7", *of],
        "check": ["inspect", str(store), "--check"],
    }


def said(out: str, store: Path) -> object:
    """Return what a command says of a store, without where that is."""
    text = out.replace(str(store), "STORE")
    return json.loads(text) if text.startswith(("{", "[")) else text


def stored(draw: random.Random, inputs: Inputs, folder: Path) -> Case:
    """Damage a file of a store; whatever is accepted says what the sound store said."""
    store = inputs.copy("store", folder / "store")
    name, command = draw.choice(list(uses(store, inputs.finished).items()))
    path = draw.choice(sorted(store.iterdir()))
    match draw.randrange(8):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(path.read_bytes()[: draw.choice([0, 1, -1, -4])])
        case 2:
            other = draw.choice(sorted(store.iterdir()))
            path.write_bytes(other.read_bytes())
        case 3 | 4:
            path = store / "manifest.json"
            values = damage_tree(draw, json.loads(path.read_text()))
            if draw.random() < 0.7:
                values.pop("sha256", None)  # as somebody who forges it would
            path.write_text(to_json(values))
            return Case("", [command])
        case _:
            path.write_bytes(damage_bytes(draw, path.read_bytes()))
    return Case("", [command], _as_before(inputs, name, store))


def _as_before(inputs: Inputs, name: str, store: Path) -> Callable[[list[str]], str]:
    def check(outs: list[str]) -> str:
        before = json.loads((inputs.folder / "stored.json").read_text())[name]
        return "" if said(outs[-1], store) == before else "not what the sound store said"

    return check
