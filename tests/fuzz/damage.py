"""Ways to damage bytes, texts, tables, trees of values and tensors."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

WORDS = [
    "", " ", "nan", "NaN", "inf", "-inf", "1e400", "-1", "0", "1.5", "99999999999999999999", "null",
    "true", "=1+1", "@x", "-", "\u202e", "γ", "a\tb", "🎬" * 3, "'", '"', "\\", "[", "[[[", "{",
    "../x", "/etc/passwd", "~nobody/x", "*", "x" * 5000, "a,b", "a|b", "\r", "#", "%s", "{0}",
    "\x1b[31m", "None",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e-320, 1e300,
    float("nan"), float("inf"), "", "x", [], {}, [[]], [None], {"x": 1}, ["movie"],
    "movie-actor-movie",
]  # fmt: skip


def damage_bytes(draw: random.Random, content: bytes) -> bytes:
    """Flip, cut, repeat, zero or insert bytes."""
    found = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        at = draw.randrange(len(found) + 1)
        size = draw.choice([1, 1, 3, 20, 300])
        match draw.randrange(7):
            case 0 if found:
                found[at % len(found)] ^= 1 << draw.randrange(8)
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = found[at : at + size]
            case 3:
                found[at : at + size] = bytes(len(found[at : at + size]))
            case 4:
                found[at:at] = draw.randbytes(size)
            case 5:
                del found[at:]
            case _:
                found[at:at] = draw.choice(WORDS).encode()
    return bytes(found)


def damage_csv(draw: random.Random, text: str) -> bytes:
    """Change cells, rows, columns or the encoding of a table."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(draw.choice([1, 1, 2, 4])):
        row = draw.choice(rows) if rows else []
        at = draw.randrange(len(row)) if row else 0
        match draw.randrange(12):
            case 0 | 1 | 2 if row:
                row[at] = draw.choice(WORDS)
            case 3 if row:
                del row[at]
            case 4:
                row.insert(at, draw.choice(WORDS))
            case 5:
                rows.insert(draw.randrange(len(rows) + 1), list(row))
            case 6 if len(rows) > 1:
                rows.remove(row)
            case 7:
                rows = [cells[:at] + cells[at + 1 :] for cells in rows]
            case 8:
                rows = [[*cells, *cells[at : at + 1]] for cells in rows]
            case 9 if rows:
                rows[0] = [draw.choice([cell.upper(), cell]) for cell in rows[0]]
            case 10:
                rows = [cells if i == 0 else [*cells[:at], ""] for i, cells in enumerate(rows)]
            case _:
                draw.shuffle(rows)
    joined = draw.choice(["\n", "\n", "\n", "\r\n", "\r"]).join(",".join(cells) for cells in rows)
    encoding = draw.choice(["utf-8"] * 6 + ["utf-16", "utf-8-sig", "latin-1"])
    return (joined + draw.choice(["\n", "\n", ""])).encode(encoding, "replace")


def damage_tree(draw: random.Random, values: dict[str, Any]) -> dict[str, Any]:
    """Change, remove, rename or add values somewhere in a tree of them."""
    found = copy.deepcopy(values)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        place: Any = found
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and draw.random() < 0.8:
                place = place[key]
                continue
            match draw.randrange(8):
                case 0:
                    del place[key]
                case 1 if isinstance(place, dict):
                    place[draw.choice(WORDS)] = place.pop(key)
                case 2 if isinstance(place, dict):
                    place[draw.choice(WORDS)] = draw.choice(VALUES)
                case 3 if isinstance(place[key], str):
                    place[key] = draw.choice(WORDS)
                case 4 if isinstance(place[key], str):
                    place[key] += draw.choice(WORDS)
                case 5 if isinstance(place[key], int | float):
                    place[key] = draw.choice([-place[key], place[key] * 10**9, place[key] + 0.5])
                case 6:
                    place[key] = _nested(draw.choice([3, 30, 300, 3000]))
                case _:
                    place[key] = copy.deepcopy(draw.choice(VALUES))
            break
    return found


def _nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


def without_none(values: Any) -> Any:
    """Return values as TOML can hold them; those nested deeper than a writer can go are cut."""
    found, depth = values, 0
    while isinstance(found, list) and found:
        found, depth = found[0], depth + 1
    if depth > 200:
        return "deep"
    if isinstance(values, dict):
        return {str(k): without_none(v) for k, v in values.items() if v is not None}
    return (
        [without_none(v) for v in values if v is not None] if isinstance(values, list) else values
    )


def to_json(values: Any) -> str:
    """Return values as JSON; those nested deeper than a writer can go are brackets alone."""
    try:
        return json.dumps(values)
    except RecursionError:
        return "[" * 5000 + "]" * 5000


def damage_tensors(draw: random.Random, path: Path) -> None:
    """Change a tensor or the metadata of a safetensors file, which is then of the right form."""
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata() or {})
    name = draw.choice(sorted(tensors))
    tensor = tensors[name]
    match draw.randrange(8):
        case 0:
            del tensors[name]
        case 1:
            tensors[f"{name}x"] = tensors.pop(name)
        case 2:
            tensors[name] = torch.full_like(tensor.float(), float("nan"))
        case 3:
            tensors[name] = torch.cat([tensor.reshape(-1), tensor.reshape(-1)[:1]])
        case 4:
            tensors[name] = tensor.to(draw.choice([torch.float64, torch.int32, torch.float16]))
        case 5:
            tensors[name] = torch.zeros(0)
        case 6:
            metadata = draw.choice([{}, {"numbers": "[]"}, {"numbers": "{}"}, {"numbers": "{"}])
        case _:
            tensors[name] = tensor + 1 if tensor.is_floating_point() else tensor * 0
    save_file(tensors, path, metadata=metadata)
