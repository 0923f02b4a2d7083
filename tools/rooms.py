"""Draw the rooms of hanme and the imports between them.

    python tools/rooms.py docs/rooms.svg

The rows are the layers that `lint-imports` checks (pyproject.toml); the arrows are the imports that
the code has. An arrow is left out where a longer way through other rooms leads to the same room,
and so are arrows to the rooms that every other one may use.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
HOLDS = {
    "cli": "one file per command",
    "serve": "the API and its page",
    "estimator": "Classifier: fit, predict, explain",
    "experiments": "benchmark, tune, configurations",
    "runs": "run folders, predictions, curves",
    "explain": "from a prediction back to instances",
    "training": "trainer, stacking, decision",
    "linear": "linear model, trees, smoothing",
    "decision": "from logits to labels",
    "data": "benchmark, planted, your tables",
    "nn": "channels, fusion, head; the models",
    "transforms": "metapath instances for PyG",
    "ops": "attention over metapath instances",
    "graph": "nodes, links, labels, split",
    "common": "files, TOML, options, HTML, memory",
    "errors": "HanmeError",
}
GROUND = ("common", "errors")
"""The rooms that every other one may use."""

WIDTH, BOX, HEIGHT, GAP, MARGIN = 940, 250, 46, 40, 20
SKY, INK, LINE, BACK = "#eaf1fb", "#1c2b41", "#3b6ea8", "#c2571a"

Arrow = tuple[str, str]


@dataclass(frozen=True)
class Box:
    """A room in the picture: its centre and its row."""

    room: str
    x: float
    row: int

    @property
    def top(self) -> float:
        """Where arrows come in."""
        return MARGIN + self.row * (HEIGHT + GAP)

    @property
    def bottom(self) -> float:
        """Where arrows go out."""
        return self.top + HEIGHT

    def covers(self, x: float) -> bool:
        """Return whether a vertical line at ``x`` would cross the box or come close to it."""
        return abs(x - self.x) < BOX / 2 + 8


def contract() -> tuple[list[list[str]], set[tuple[str, str]]]:
    """Return the layers, top first, and the imports that are allowed to go against them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (c for c in settings["contracts"] if c["type"] == "layers")
    rows = [[room.strip() for room in layer.split("|")] for layer in layers["layers"]]
    allowed = {tuple(line.split(" -> ")) for line in layers["ignore_imports"]}
    return rows, {(a, b) for a, b in allowed if a != "hanme"}


def imports() -> Iterator[tuple[str, str]]:
    """Yield every import of one module of hanme by another."""
    graph = grimp.build_graph("hanme", cache_dir=None)
    for module in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            yield module, imported


def room_of(module: str) -> str:
    """Return the room that a module is in; the package itself and ``-m hanme`` are in none."""
    room = module.partition(".")[2].split(".")[0]
    return "" if room == "__main__" else room


def arrows(allowed: set[tuple[str, str]]) -> tuple[list[Arrow], list[Arrow]]:
    """Return the arrows between rooms, shortcuts left out, and those against the layers."""
    found: set[Arrow] = set()
    against: set[Arrow] = set()
    for module, imported in imports():
        arrow = room_of(module), room_of(imported)
        if arrow[0] == arrow[1] or "" in arrow or set(arrow) & set(GROUND):
            continue
        (against if (module, imported) in allowed else found).add(arrow)
    below = {a: {y for x, y in found if x == a} for a, _ in found}

    def reached(room: str) -> set[str]:
        return {r for b in below.get(room, ()) for r in (b, *reached(b))}

    direct = {(a, b) for a, b in found if not any(b in reached(c) for c in below[a] - {b})}
    return sorted(direct), sorted(against)


def place(rows: list[list[str]]) -> dict[str, Box]:
    """Spread the rooms of each layer over the width."""
    boxes = {}
    for number, row in enumerate(rows):
        for i, room in enumerate(row):
            boxes[room] = Box(room, WIDTH * (2 * i + 1) / (2 * len(row)), number)
    return boxes


def ports(direct: list[Arrow], boxes: dict[str, Box]) -> dict[Arrow, tuple[float, float]]:
    """Return where each arrow leaves its box and where it arrives, side by side."""
    ends: dict[Arrow, list[float]] = {arrow: [0.0, 0.0] for arrow in direct}
    for end in (0, 1):
        for room, box in boxes.items():
            mine = [a for a in direct if a[end] == room]
            mine.sort(key=lambda a: (boxes[a[1 - end]].x, boxes[a[1 - end]].row))
            for i, arrow in enumerate(mine):
                ends[arrow][end] = box.x + 34 * (i - (len(mine) - 1) / 2)
    return {arrow: (a, b) for arrow, (a, b) in ends.items()}


def route(start: Box, x0: float, end: Box, x1: float, boxes: dict[str, Box]) -> str:
    """Return the path of an arrow: down a lane that crosses no box, bent in the gaps."""
    between = [box for box in boxes.values() if start.row < box.row < end.row]
    lanes = [x1, x0, *(box.x + side * (BOX / 2 + 16) for box in between for side in (-1, 1))]
    free = [x for x in lanes if not any(box.covers(x) for box in between)]
    lane = min(free, key=lambda x: (abs(x - x0) + abs(x - x1), lanes.index(x)))
    y0, y1 = start.bottom, end.top - 7
    first, last = y0 + GAP - 10, y1 - GAP + 17
    if end.row == start.row + 1:
        return f"M{x0:g},{y0:g} C{x0:g},{y0 + 22:g} {x1:g},{y1 - 22:g} {x1:g},{y1:g}"
    return (
        f"M{x0:g},{y0:g} C{x0:g},{first:g} {lane:g},{y0 + 6:g} {lane:g},{first:g} "
        f"L{lane:g},{last:g} C{lane:g},{y1 - 6:g} {x1:g},{last:g} {x1:g},{y1:g}"
    )


def draw_box(box: Box) -> Iterator[str]:
    """Yield a room: its name, and what it holds."""
    yield (
        f'<rect x="{box.x - BOX / 2:g}" y="{box.top:g}" width="{BOX}" height="{HEIGHT}" '
        f'rx="6" fill="{SKY}" stroke="{LINE}"/>'
    )
    yield f'<text x="{box.x:g}" y="{box.top + 20:g}" class="room">{escape(box.room)}</text>'
    yield f'<text x="{box.x:g}" y="{box.top + 36:g}">{escape(HOLDS[box.room])}</text>'


def draw_back(start: Box, end: Box) -> str:
    """Return a dashed arrow up to a room, beside the boxes of its column."""
    x = max(min(start.x, end.x) - BOX / 2 - 14, 8)
    y0, y1 = start.top + HEIGHT / 2, end.top + HEIGHT / 2
    return (
        f'<path d="M{start.x - BOX / 2:g},{y0:g} L{x:g},{y0:g} L{x:g},{y1:g} '
        f'L{end.x - BOX / 2 - 7:g},{y1:g}" class="back" marker-end="url(#back)"/>'
    )


def picture() -> str:
    """Return the picture as SVG."""
    rows, allowed = contract()
    direct, against = arrows(allowed)
    boxes = place([*(row for row in rows if not set(row) & set(GROUND)), list(GROUND)])
    at = ports(direct, boxes)
    height = max(box.bottom for box in boxes.values()) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" role="img" aria-label="Rooms of hanme">',
        "<style>text{font:12px sans-serif;text-anchor:middle;"
        f"fill:{INK}}}"
        ".room{font-weight:bold;font-size:15px}.note{fill:#5a6b82}"
        f"path{{fill:none;stroke:{LINE};stroke-width:1.6}}"
        f".back{{stroke:{BACK};stroke-dasharray:5 4}}</style>",
        *(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="6" '
            f'markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z" '
            f'style="fill:{colour};stroke:none"/></marker>'
            for name, colour in (("tip", LINE), ("back", BACK))
        ),
        f'<rect width="{WIDTH}" height="{height:g}" fill="white"/>',
    ]
    for a, b in direct:
        path = route(boxes[a], at[a, b][0], boxes[b], at[a, b][1], boxes)
        parts.append(f'<path d="{path}" marker-end="url(#tip)"/>')
    parts += [draw_back(boxes[a], boxes[b]) for a, b in against]
    for box in boxes.values():
        parts += draw_box(box)
    parts.append(
        f'<text x="{WIDTH / 2:g}" y="{height - 14:g}" class="note">Arrows are imports; those that '
        "a longer way implies are left out. Every room may use the two at the bottom.</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "rooms.svg").write_text(picture())
