"""Explanations as pictures: one SVG or HTML file that needs nothing else.

The drawing is a tree of elements, and names are only ever text in it: writing the tree escapes
them. Text takes the colour around it, so a picture is readable on light and dark ground.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from xml.etree import ElementTree as ET

from hanme.common.files import replacing
from hanme.common.text import html_table, printable
from hanme.errors import HanmeError
from hanme.explain.explanation import SHOWN, Explanation, Reason, percent, signed

FOR, AGAINST, PLAIN = "#2f7de1", "#e07b1f", "#8a8f98"
LABELS = ("#2a9d8f", "#8e5bd0", "#c2417c", "#7a8b1c", "#b5651d", "#4c6ef5", "#d6336c", "#0b7285")
"""Colours of labels; after the last one they begin again."""

WIDTH, SIDE, LINE = 860, 24, 20  # sizes in pixels
NAME, BAR = 380, 300  # the widths of a reason's text and of the scale from 0 to 100 %
BOX, GAP, ROW, CHIP = 170, 90, 46, 84  # the picture of links
LINKS = 6  # number of links that are drawn
CHIPS = 4  # number of nodes behind a link that are drawn
LETTER = 0.56  # about the width of a letter of size 1
LIKELIEST = 8  # number of labels that are drawn
FAINT = 0.35  # opacity of the smallest contribution

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
LEGEND = "Blue is in favour, orange against; the wider and stronger, the larger the contribution."


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
    """Return the picture, all reasons as a table, and collapsed details, for an HTML page."""
    label = printable(found.label)
    head = ["reason", "evidence", "contribution", f"{label} without it"]
    reasons = html_table(head, found.rows(len(found.reasons)))
    details = found.details
    sums = [[printable(name), f"{value:+.4f}"] for name, value in details.summands(found.label)]
    sums.append(["logit", f"{found.logits[found.label]:+.4f}"])
    tables = html_table(["summand", f"part of {label}"], sums)
    if details.instances:
        rows = [
            [str(one), f"{one.attention:.2%}", f"{one.parts[found.label]:+.4f}"]
            for one in details.instances
        ]
        tables += html_table(["instance", "attention", f"part of {label}"], rows)
    drawn = ET.tostring(draw(found), encoding="unicode")
    closed = f"<details><summary>Details</summary>{tables}</details>"
    return f"<div>{drawn}{reasons}{closed}</div>"


def draw(found: Explanation) -> ET.Element:
    """Return the drawing, as an ``svg`` element."""
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    ET.SubElement(svg, "title").text = found.title
    y = 34.0
    for line in _wrapped(found.sentence, 0.9 * (WIDTH - 2 * SIDE), 17):  # bold letters are wider
        _text(svg, SIDE, y, line, size=17, weight=600, room=WIDTH - 2 * SIDE)
        y += 24
    y = _probabilities(svg, y + 8, found)
    y = _waterfall(svg, y, found)
    if any(one.kind == "link" for one in found.reasons):
        y = _links(svg, y, found)
    _text(svg, SIDE, y, LEGEND, size=11, opacity=0.75)
    y += LINE
    svg.attrib |= {"viewBox": f"0 0 {WIDTH} {y:g}", "width": str(WIDTH), "height": f"{y:g}"}
    svg.set("font-family", "system-ui, sans-serif")
    return svg


def _probabilities(svg: ET.Element, y: float, found: Explanation) -> float:
    """Draw the probabilities of the most likely labels; return where the next section begins."""
    _text(svg, SIDE, y, "Probability", weight=600)
    for label, p in found.ranked[:LIKELIEST]:
        y += LINE
        _text(svg, SIDE, y, label, room=NAME - SIDE - 10)
        size = {"width": round(BAR * p, 1), "height": 12}
        _add(svg, "rect", x=NAME, y=y - 10, fill=_label_colour(found, label), **size)
        _text(svg, NAME + BAR + 10, y, percent(p))
    return y + 1.8 * LINE


def _waterfall(svg: ET.Element, y: float, found: Explanation) -> float:
    """Draw how the reasons lead from the base rate to the prediction."""
    label, steps = found.label, found.steps
    _text(svg, SIDE, y, f"From the base rate to {percent(steps[-1])} {label}", weight=600)
    shown = found.reasons[:SHOWN]
    rows = [("starting point of the model", "the same for all", found.base[label])]
    rows += [(one.text, one.evidence, one.contributions[label]) for one in shown]
    rate = found.base_rate[label]
    ends = [rate, *steps[: len(shown) + 1], *steps[-1:]]
    if rest := found.reasons[SHOWN:]:
        rows.append((f"{len(rest):,} more", "", sum(one.contributions[label] for one in rest)))
    y += LINE
    _text(svg, SIDE, y, "base rate")
    _add(svg, "rect", x=NAME, y=y - 10, width=_x(rate), height=12, fill=PLAIN)
    _text(svg, NAME + BAR + 10, y, percent(rate))
    most = max((abs(value) for _, _, value in rows), default=0) or 1
    for (text, evidence, value), start, end in zip(rows, ends, ends[1:], strict=False):
        y += 1.7 * LINE
        _text(svg, SIDE, y - 4, text, room=NAME - SIDE - 10)
        _text(svg, SIDE, y + 9, evidence, size=10, room=NAME - SIDE - 10, opacity=0.75)
        group = _add(svg, "g")
        left, width = NAME + _x(min(start, end)), max(_x(abs(end - start)), 1.5)
        colour = {"fill": _colour(value), "fill_opacity": _opacity(value, most)}
        _add(group, "rect", x=left, y=y - 10, width=width, height=12, **colour)
        _text(svg, NAME + BAR + 10, y, f"{signed(value)}  → {percent(end)}")
    return y + 2 * LINE


def _links(svg: ET.Element, y: float, found: Explanation) -> float:
    """Draw the node, its neighbours, and the nodes behind them by their known labels."""
    _text(svg, SIDE, y, "Links, and the known labels behind them", weight=600)
    links = [one for one in found.reasons if one.kind == "link"][:LINKS]
    own = [one.contributions[found.label] for one in found.reasons if one.kind == "column"]
    rows: list[tuple[float, Reason | None]] = [
        (one.contributions[found.label], one) for one in links
    ]
    if own:
        rows.append((sum(own), None))
    most = max(abs(value) for value, _ in rows) or 1
    centre, y = y + LINE + ROW * len(rows) / 2, y + LINE
    for value, one in rows:
        middle, x = y + ROW / 2, SIDE + BOX
        group = ET.SubElement(svg, "g")
        bend = f"C {x + GAP / 2} {centre} {x + GAP / 2} {middle} {x + GAP} {middle}"
        line = {"stroke": _colour(value), "stroke_opacity": _opacity(value, most), "fill": "none"}
        line["stroke_width"] = f"{1.5 + 9 * abs(value) / most:.2f}"
        _add(group, "path", d=f"M {x} {centre} {bend}", **line)
        _text(group, x + GAP - 20, middle - 10, signed(value), size=11, text_anchor="middle")
        _box(group, x + GAP, middle, "own columns" if one is None else one.text)
        x += GAP + BOX + 14
        for _, name, labels in one.sharing[:CHIPS] if one else ():
            colour = _label_colour(found, labels[0]) if labels else PLAIN
            size = {"width": CHIP, "height": 24, "rx": 12, "fill_opacity": 0.25}
            _add(group, "rect", x=x, y=middle - 12, fill=colour, stroke=colour, **size)
            _text(
                group, x + CHIP / 2, middle + 4, name, size=10, room=CHIP - 14, text_anchor="middle"
            )
            x += CHIP + 6
        y += ROW
    _box(svg, SIDE, centre, found.node)
    x = SIDE
    for label, _ in found.ranked[:LIKELIEST]:
        _add(svg, "rect", x=x, y=y + 6, width=12, height=12, fill=_label_colour(found, label))
        _text(svg, x + 17, y + 16, label, size=11, room=80)
        x += 100
    return y + 2 * LINE


def _label_colour(found: Explanation, label: str) -> str:
    return LABELS[list(found.logits).index(label) % len(LABELS)]


def _x(share: float) -> float:
    return round(BAR * share, 1)


def _opacity(value: float, most: float) -> str:
    return f"{FAINT + (1 - FAINT) * abs(value) / most:.2f}"


def _colour(value: float) -> str:
    return FOR if value > 0 else AGAINST if value < 0 else PLAIN


def _box(svg: ET.Element, x: float, y: float, name: str) -> None:
    size = {"width": BOX, "height": 28, "rx": 7}
    _add(svg, "rect", x=x, y=y - 14, fill=PLAIN, fill_opacity=0.15, stroke=PLAIN, **size)
    _text(svg, x + BOX / 2, y + 4, name, room=BOX - 12, text_anchor="middle")


def _add(parent: ET.Element, tag: str, **attributes: object) -> ET.Element:
    """Add an element with our own numbers and words; a name is never an attribute."""
    named = {key.replace("_", "-"): str(value) for key, value in attributes.items()}
    return ET.SubElement(parent, tag, named)


def _widths(text: str, size: float) -> Sequence[float]:
    """Return about where each letter ends."""
    wide = (2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
    return [width * LETTER * size for width in accumulate(wide)]


def _wrapped(text: str, room: float, size: int) -> list[str]:
    """Break a text into lines between words."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _widths(longer, size)[-1] > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


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
    fits = sum(width <= room for width in _widths(text, size))
    line.text = text if fits == len(text) else text[: fits - 1] + "…"
    if line.text != text:
        ET.SubElement(line, "title").text = text
