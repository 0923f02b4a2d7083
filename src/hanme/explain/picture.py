"""Explanations as pictures: one SVG or HTML file that needs nothing else.

The drawing is a tree of elements, and names are only ever text in it: writing the tree escapes
them. Text takes the colour around it, so a picture is readable on light and dark ground.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from xml.etree import ElementTree as ET

from hanme.common.files import replacing
from hanme.common.text import html_table, printable
from hanme.errors import HanmeError
from hanme.explain.explanation import Explanation

FOR, AGAINST, PLAIN = "#2f7de1", "#e07b1f", "#8a8f98"
SIDE, BOX, GAP, ROW, LINE = 24, 150, 46, 56, 20  # sizes in pixels
NAME, BAR = 420, 160  # the widths of a bar's name and of the longest bar
WIDTH = 760  # the smallest width of a picture
LETTER = 0.56  # about the width of a letter of size 1
LIKELIEST = 8  # how many labels are drawn

STYLE = (
    ":root { color: #1b1f24; background: #fff } "
    "@media (prefers-color-scheme: dark) { :root { color: #e6e8eb; background: #16181c } }"
)
PAGE = (
    " body { margin: 2rem; font: 14px system-ui, sans-serif } "
    "svg { max-width: 100%; height: auto } "
    "table { border-collapse: collapse; margin-top: 1.5rem } "
    "th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8a8f9855 } "
    "th:first-child, td:first-child { text-align: left }"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
LEGEND = (
    "Blue adds to the logit, orange subtracts from it; wider is more. "
    "Below a node: its share of the encoding."
)


def save(explanation: Explanation, path: str | Path) -> None:
    """Write a picture as .svg or .html; an existing file is replaced once the new one is whole."""
    path = Path(path)
    check_suffix(path)
    if path.suffix.lower() == ".svg":
        svg = draw(explanation)
        style = ET.Element("style")
        style.text = STYLE
        svg.insert(0, style)
        text = ET.tostring(svg, encoding="unicode") + "\n"
    else:
        text = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>{escape(explanation.title)}</title><style>{STYLE}{PAGE}</style></head>"
            f"<body>{fragment(explanation)}</body></html>\n"
        )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_suffix(path: Path) -> None:
    """Refuse to write what is no picture."""
    if path.suffix.lower() not in (".svg", ".html"):
        raise HanmeError(f"{path}: a picture's name ends with .svg or .html")


def fragment(found: Explanation) -> str:
    """Return the picture, and every number behind it as tables, for an HTML page."""
    likely = [label for label, _ in found.ranked[:2]]
    labels = list(dict.fromkeys([found.label, *found.predicted, *found.given, *likely]))

    def numbers(values: Mapping[str, float]) -> list[str]:
        return [f"{values[label]:+.4f}" for label in labels]

    heads = [printable(f"part of {label}") for label in labels]
    sums = [[printable(name), *numbers(p)] for name, p in found.summands.items()]
    tables = [html_table(["summand", *heads], [*sums, ["logit", *numbers(found.logits)]])]
    if found.reasons:
        rows = [[str(one), *numbers(one.parts)] for one in found.reasons]
        tables.append(html_table(["within the linear part", *heads], rows))
    if found.instances:
        moves = [printable(f"move of {label}") for label in labels]
        rows = [
            [str(one), f"{one.attention:.2%}", *numbers(one.parts), *numbers(one.moves)]
            for one in found.instances
        ]
        tables.append(html_table(["instance", "attention", *heads, *moves], rows))
    return f"<div>{ET.tostring(draw(found), encoding='unicode')}{''.join(tables)}</div>"


def draw(found: Explanation) -> ET.Element:
    """Return the drawing, as an ``svg`` element."""
    label = found.label
    length = max((len(one.nodes) for one in found.instances), default=2)
    width = max(WIDTH, 2 * SIDE + BOX + (length - 1) * (GAP + BOX) + BOX)
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    ET.SubElement(svg, "title").text = found.title
    _text(svg, SIDE, 34, found.title, size=18, room=width - 2 * SIDE, weight=600)
    y = _bars(svg, 60, "Probability", found.ranked[:LIKELIEST], "{:.1%}", colour=PLAIN)
    sums = [(name, parts[label]) for name, parts in found.summands.items()]
    y = _bars(svg, y, f"Logit of {label}: {found.logits[label]:+.3f}, the sum of", sums)
    if found.reasons:
        rows = [(str(reason), reason.parts[label]) for reason in found.reasons]
        y = _bars(svg, y, "Largest contributions within the linear part", rows)
    if found.instances:
        _text(svg, SIDE, y, f"Top {len(found.instances)} instances by {found.by}", weight=600)
        y = _chains(svg, y + LINE / 2, found)
        _text(svg, SIDE, y, LEGEND, size=11, opacity=0.75)
        y += LINE
    svg.attrib |= {"viewBox": f"0 0 {width} {y:g}", "width": str(width), "height": f"{y:g}"}
    svg.set("font-family", "system-ui, sans-serif")
    return svg


def _bars(
    svg: ET.Element,
    y: float,
    title: str,
    rows: Sequence[tuple[str, float]],
    form: str = "{:+.4f}",
    colour: str | None = None,
) -> float:
    """Draw numbers as horizontal bars below a title; return where the next section begins."""
    _text(svg, SIDE, y, title, weight=600)
    most = max((abs(value) for _, value in rows), default=0) or 1
    for name, value in rows:
        y += LINE
        _text(svg, SIDE, y, name, room=NAME - SIDE - 10)
        size = {"width": round(BAR * abs(value) / most, 1), "height": 12}
        _add(svg, "rect", x=NAME, y=y - 10, fill=colour or _colour(value), **size)
        _text(svg, NAME + BAR + 10, y, form.format(value))
    return y + 1.6 * LINE


def _colour(part: float) -> str:
    return FOR if part > 0 else AGAINST if part < 0 else PLAIN


def _chains(svg: ET.Element, y: float, found: Explanation) -> float:
    """Draw the instances, those that return to the root as one; return where they end."""
    rows: dict[object, tuple[float, list[tuple[str, str]]]] = {}
    own = [one for one in found.instances if one.returns()]
    for one in found.instances:
        boxes = [
            (name, f"{kind} {share:.0%}")
            for name, kind, share in zip(one.nodes, one.types, one.hops, strict=True)
        ]
        if one.returns():
            part = sum(each.parts[found.label] for each in own)
            rows["itself"] = part, [("itself", f"its own features, {len(own)}×")]
        else:
            rows[id(one)] = one.parts[found.label], boxes[1:]
    most = max(abs(part) for part, _ in rows.values()) or 1
    centre = y + ROW * len(rows) / 2
    for part, boxes in rows.values():
        line = {"stroke": _colour(part), "fill": "none"}
        line["stroke_width"] = f"{1.5 + 7 * abs(part) / most:.2f}"
        group, x, middle = ET.SubElement(svg, "g"), SIDE + BOX, y + ROW / 2
        bend = f"C {x + GAP / 2} {centre} {x + GAP / 2} {middle} {x + GAP} {middle}"
        _add(group, "path", d=f"M {x} {centre} {bend}", **line)
        for i, (name, below) in enumerate(boxes):
            if i:
                _add(group, "path", d=f"M {x} {middle} H {x + GAP}", **line)
            _box(group, x + GAP, middle, name, below)
            x += GAP + BOX
        _text(group, x + 12, middle + 4, f"part {part:+.4f}", weight=600)
        y += ROW
    _box(svg, SIDE, centre, found.node, "")
    return y + LINE


def _box(svg: ET.Element, x: float, y: float, name: str, below: str) -> None:
    size = {"width": BOX, "height": 28, "rx": 7}
    _add(svg, "rect", x=x, y=y - 14, fill=PLAIN, fill_opacity=0.15, stroke=PLAIN, **size)
    _text(svg, x + BOX / 2, y + 4, name, room=BOX - 12, text_anchor="middle")
    _text(svg, x + BOX / 2, y + 25, below, room=BOX, text_anchor="middle", size=9, opacity=0.75)


def _add(parent: ET.Element, tag: str, **attributes: object) -> ET.Element:
    """Add an element with our own numbers and words; a name is never an attribute."""
    named = {key.replace("_", "-"): str(value) for key, value in attributes.items()}
    return ET.SubElement(parent, tag, named)


def _text(
    parent: ET.Element,
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    room: float = 10_000,
    weight: int = 400,
    **attributes: object,
) -> None:
    """Add text; what exceeds its room is cut, and whole in the element's title."""
    text = printable(text)
    own = {"x": x, "y": y, "fill": "currentColor", "font_size": size, "font_weight": weight}
    line = _add(parent, "text", **own | attributes)
    widths = accumulate(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
    fits = sum(width * LETTER * size <= room for width in widths)
    line.text = text if fits == len(text) else text[: fits - 1] + "…"
    if line.text != text:
        ET.SubElement(line, "title").text = text
