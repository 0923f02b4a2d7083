"""Flip every bit of a small run folder and of a small store: ``make flips``.

Each flip is rejected with one line, or harmless: predictions, result and metrics are those of the
sound files, bit for bit. Anything else is a defect. ``--every N`` flips each N-th bit.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from fuzz.harness import Outcome, Tally, judged
from fuzz.inputs import write_tables
from hanme.data import load
from hanme.data.store.open import open_store
from hanme.data.store.write import write_store
from hanme.errors import HanmeError
from hanme.runs import OpenedRun, RunConfig, train

NODES = ["f7", "f38"]
"""A node with a known label and one without."""


@dataclass(frozen=True)
class Small:
    """A folder, and a function that reads all of it that is ever read."""

    folder: Path
    read: Callable[[], object]


def make(folder: Path) -> dict[str, Small]:
    """Train a small run on tables, and store their graph."""
    options = {"metapaths": ["film-person-film"], "hidden_channels": 4, "heads": 1}
    config = RunConfig.make(
        {
            "data": {"name": str(write_tables(folder / "tables") / "graph.toml")},
            "model": {"options": options},
            "training": {"epochs": 4},
        }
    )
    train(config, folder / "run")
    graph = load(str(folder / "tables" / "graph.toml"))
    write_store(graph, folder / "store", features="given")

    def predicted() -> object:
        run = OpenedRun.open(folder / "run", graph=graph)
        return run.predict(NODES).rows(), run.logits().tolist(), run.result, run.metrics

    def stored() -> object:
        found = open_store(folder / "store")
        parts = [found.y, *found.split]
        for nodes in found.nodes.values():
            assert nodes.x is not None
            parts.append(nodes.x.to_dense())
        parts += found.links.values()
        texts = [list(names) for n in found.nodes.values() for names in (n.ids, n.names) if names]
        about = (found.labels, found.target, found.metapaths, found.provenance)
        return [part.tolist() for part in parts], texts, about

    return {"run": Small(folder / "run", predicted), "store": Small(folder / "store", stored)}


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Flip a bit of a file, and flip it back in the end."""
    with path.open("r+b", buffering=0) as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
    try:
        yield
    finally:
        with path.open("r+b", buffering=0) as file:
            file.seek(bit // 8)
            file.write(bytes([byte]))


def outcome(read: Callable[[], object], sound: str) -> Outcome:
    """Read damaged files and judge how that ends."""

    def call() -> Outcome:
        try:
            found = read()
        except HanmeError as error:
            several = "\n" in str(error)
            return Outcome("defect" if several else "refused", str(error))
        same = repr(found) == sound
        return Outcome("accepted", "") if same else Outcome("defect", "silently different")

    return judged(call)


def flip_all(small: Small, every: int = 1, only: str = "*") -> dict[str, Tally]:
    """Flip each N-th bit of the files of a folder, one at a time; return counts by file."""
    sound, tallies = repr(small.read()), {}
    assert repr(small.read()) == sound
    for path in sorted(small.folder.glob(only)):
        tally = tallies[path.name] = Tally()
        for bit in range(0, 8 * path.stat().st_size, every):
            with flipped(path, bit):
                tally.add(f"{path.name}, bit {bit}", outcome(small.read, sound))
    return tallies


def main() -> None:
    """Flip bits and print counts by file; the status is 1 if there was a defect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", default=["run", "store"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of file names")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    defects = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        os.environ["HANME_CACHE"] = f"{name}/cache"
        smalls = make(Path(name))
        for folder in arguments.folders:
            began, total = time.monotonic(), Tally()
            for file, tally in flip_all(smalls[folder], arguments.every, arguments.only).items():
                print(f"{folder}/{file}: {tally}", *tally.defects[:3], sep="\n  ", flush=True)
                total.counts += tally.counts
            print(f"{folder}: {total}, {time.monotonic() - began:.0f} s", flush=True)
            defects += total.counts["defect"]
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()
