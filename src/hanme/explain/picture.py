"""Explanations as pictures: one SVG or HTML file that needs nothing else.

The drawing is a tree of elements, and names are only ever text in it: what writes the tree escapes
them. Text takes the colour around it, so that a picture is read on light and dark ground alike.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
import unicodedata
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from hanme.common.files import replacing
from hanme.errors import HanmeError
from hanme.explain.explanation import Explanation, Fidelity, Instance, hops, shown

FOR, AGAINST, PLAIN = "#2f7de1", "#e07b1f", "#8a8f98"
BOX, GAP, ROW, SIDE, NUMBERS, BAR = 150, 46, 56, 24, 190, 100
LIKELIEST = 8
LETTER = 6.7  # about the width of a letter at size 12

_STYLE = (
    ":root { color: #1b1f24; background: #fff } "
    "@media (prefers-color-scheme: dark) { :root { color: #e6e8eb; background: #16181c } }"
)
_PAGE = (
    " body { margin: 2rem; font: 14px system-ui, sans-serif } "
    "svg { max-width: 100%; height: auto } "
    "table { border-collapse: collapse; margin-top: 1.5rem } "
    "th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8a8f9855 } "
    "th:first-child, td:first-child { text-align: left }"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def save(result: Explanation | Fidelity, path: str | Path) -> None:
    """Write a picture; a file that is there is replaced once the new one is whole."""
    path = Path(path)
    check_suffix(path)
    text = _svg_file(result) if path.suffix.lower() == ".svg" else _html_file(result)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_suffix(path: Path) -> None:
    """Refuse to write what is no picture."""
    if path.suffix.lower() not in (".svg", ".html"):
        raise HanmeError(f"{path}: a picture's name ends with .svg or .html")


def fragment(result: Explanation | Fidelity) -> str:
    """Return the picture and its tables for a page that is there already."""
    page = ET.Element("div")
    page.extend(_content(result))
    return ET.tostring(page, encoding="unicode", method="html")


def show(result: Explanation | Fidelity) -> None:
    """Show a result below the cell of a notebook, or else in a browser, from a temporary file."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python else None
    if shell is not None and hasattr(shell, "kernel"):
        python.display.display(result)  # type: ignore[union-attr]
        return
    path = Path(tempfile.mkdtemp(prefix="hanme-")) / "explanation.html"
    save(result, path)
    webbrowser.open(path.as_uri())


def draw(result: Explanation | Fidelity) -> ET.Element:
    """Return the drawing, as an ``svg`` element."""
    return _explanation(result) if isinstance(result, Explanation) else _fidelity(result)


def _svg_file(result: Explanation | Fidelity) -> str:
    svg = draw(result)
    style = ET.Element("style")
    style.text = _STYLE
    svg.insert(0, style)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _html_file(result: Explanation | Fidelity) -> str:
    page = ET.Element("html", lang="en")
    head = ET.SubElement(page, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    policy = {"http-equiv": "Content-Security-Policy", "content": _POLICY}
    ET.SubElement(head, "meta", policy)  # before anything it should hold for
    ET.SubElement(head, "meta", name="viewport", content="width=device-width")
    ET.SubElement(head, "title").text = _title(result)
    ET.SubElement(head, "style").text = _STYLE + _PAGE
    body = ET.SubElement(page, "body")
    body.extend(_content(result))
    return "<!doctype html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"


def _title(result: Explanation | Fidelity) -> str:
    if isinstance(result, Fidelity):
        return f"How far the logit moves without k instances, top by {result.by}"
    return result.title


def _content(result: Explanation | Fidelity) -> list[ET.Element]:
    """Return the drawing and, for an explanation, every number behind it as tables."""
    if isinstance(result, Fidelity):
        return [draw(result)]
    return [draw(result), _adding(result), *_reasons(result), _instances(result)]


def _adding(found: Explanation) -> ET.Element:
    """List what adds up to the logits: metapaths, the parts beside them, and the sum."""
    adding = found.parts | found.others
    adding["logit"] = found.logits
    rows = [[name, *_numbers(found, parts)] for name, parts in adding.items()]
    return _table(["what adds up", *_heads(found)], rows)


def _reasons(found: Explanation) -> list[ET.Element]:
    """List the columns of the linear model that count most, if there is one."""
    rows = [[one.what, one.block, *_numbers(found, one.parts)] for one in found.reasons]
    return [_table(["node or feature", "block", *_heads(found)], rows)] if rows else []


def _instances(found: Explanation) -> ET.Element:
    """List every number of the instances: parts and moves of the labels that matter."""
    heads = ["instance", "metapath", "attention", "hops"]
    heads += [f"{what} of {label}" for label in found.chosen for what in ("part", "move")]
    rows = []
    for one in found.instances:
        cells = [str(one), one.metapath, f"{one.attention:.2%}", hops(one)]
        for label in found.chosen:
            cells += [f"{one.parts[label]:+.4f}", f"{one.moves[label]:+.4f}"]
        rows.append(cells)
    return _table(heads, rows)


def _heads(found: Explanation) -> list[str]:
    return [f"part of {label}" for label in found.chosen]


def _numbers(found: Explanation, parts: Mapping[str, float]) -> list[str]:
    return [f"{parts[label]:+.4f}" for label in found.chosen]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> ET.Element:
    table = ET.Element("table")
    for tag, cells in (("th", heads), *(("td", row) for row in rows)):
        line = ET.SubElement(table, "tr")
        for text in cells:
            ET.SubElement(line, tag).text = shown(text)
    return table


def _explanation(found: Explanation) -> ET.Element:
    ranked = sorted(found.probabilities.items(), key=lambda item: -item[1])
    shares = [(label, p, found.role(label)) for label, p in ranked[:LIKELIEST]]
    shares += [(label, p, "given") for label, p in ranked[LIKELIEST:] if label in found.given]
    weights = [(f"{m} ({found.counts[m]:,})", beta, "") for m, beta in found.metapaths.items()]
    length = max((len(instance.nodes) for instance in found.instances), default=2)
    chains = SIDE + BOX + (length - 1) * (GAP + BOX) + GAP  # where the numbers begin
    middle = SIDE + _room(shares) + BAR + 140
    right = middle + _room(weights) + BAR + 50 if weights else 0
    width = round(max(760, chains + NUMBERS + SIDE, right + SIDE))
    sums = 96 + 20 * max(len(shares), len(weights))
    rows = sums + 14
    below = rows + ROW * len(found.instances) + 20
    legend = _wrapped(_LEGEND, width) if found.instances else []
    reasons = below + 16 * len(legend) + 10
    height = reasons + (24 + 20 * len(found.reasons) if found.reasons else 0)
    svg = _svg(width, height, _title(found))
    _text(svg, SIDE, 34, _title(found), size=18, room=width - 2 * SIDE, weight="600")
    _bars(svg, SIDE, "probability", shares)
    if weights:
        _bars(svg, middle, "weight of metapath (instances)", weights)
    _text(svg, SIDE, sums, _sum(found), room=width - 2 * SIDE, weight="600")
    centre = rows + ROW * len(found.instances) / 2
    most = max((instance.attention for instance in found.instances), default=0) or 1
    for i, instance in enumerate(found.instances):
        _chain(svg, found.label, instance, rows + ROW * (i + 0.5), centre, most, chains)
    if found.instances:
        _box(svg, SIDE, centre, found.node, "")
    for i, line in enumerate(legend):
        _text(svg, SIDE, below + 16 * i, line, size=11, opacity="0.75")
    if found.reasons:
        _text(svg, SIDE, reasons, "What else counts most", size=11, opacity="0.75")
    for i, reason in enumerate(found.reasons):
        part, y = reason.parts[found.label], reasons + 20 * (i + 1)
        _add(svg, "rect", x=SIDE, y=y - 10, width=6, height=12, fill=_colour(part))
        _text(svg, SIDE + 14, y, f"{part:+.4f}", weight="600")
        _text(svg, SIDE + 80, y, str(reason), room=width - 2 * SIDE - 80)
    return svg


_LEGEND = (
    "Blue: the instance adds to the logit, its part is above 0. Orange: it takes from it. Width: "
    "attention. Below a node: its share of the encoding. Move: the logit with the instance minus "
    "without it."
)


def _sum(found: Explanation) -> str:
    """Write a logit as a sum: what comes from instances, from other channels and the bias."""
    others = {name: parts[found.label] for name, parts in found.others.items()}
    logit, bias = found.logits[found.label], others.pop("bias", 0.0)
    rest = sum(others.values())
    parts = []
    if count := sum(found.counts.values()):
        some = f"{count:,} instance{'s' * (count > 1)}"
        parts.append(f"{logit - bias - rest:+.3f} from {some}")
    parts += [f"{rest:+.3f} from what else counts"] * bool(others) + [f"{bias:+.3f} bias"]
    return f"Logit of {shown(found.label)}: {logit:+.3f} = {', '.join(parts)}"


def _wrapped(text: str, width: float) -> list[str]:
    return textwrap.wrap(text, int((width - 2 * SIDE) / (LETTER * 11 / 12)))


def _room(bars: Sequence[tuple[str, float, str]]) -> float:
    """Return how wide the names of bars are."""
    return max((LETTER * _letters(name) + 14 for name, _, _ in bars), default=0.0)


def _bars(svg: ET.Element, x: float, title: str, bars: Sequence[tuple[str, float, str]]) -> None:
    """Draw shares as horizontal bars: a name, the share, and a word beside it."""
    _text(svg, x, 60, title, size=11, opacity="0.75")
    left = round(x + _room(bars), 1)
    for i, (name, share, word) in enumerate(bars):
        y = 78 + 20 * i
        _text(svg, x, y, name)
        _add(svg, "rect", x=left, y=y - 10, width=BAR, height=12, fill=PLAIN, opacity=0.25)
        _add(svg, "rect", x=left, y=y - 10, width=round(BAR * share, 1), height=12, fill=PLAIN)
        _text(svg, left + BAR + 6, y, f"{share:.1%}")
        _text(svg, left + BAR + 50, y, word, size=11, opacity="0.75")


def _colour(part: float) -> str:
    return FOR if part > 0 else AGAINST if part < 0 else PLAIN


def _chain(
    svg: ET.Element,
    label: str,
    instance: Instance,
    y: float,
    centre: float,
    most: float,
    numbers: int,
) -> None:
    """Draw one instance: a line from the root through its nodes, then its numbers."""
    part, move = instance.parts[label], instance.moves[label]
    line = {
        "stroke": _colour(part),
        "stroke-width": round(1.5 + 7 * instance.attention / most, 2),
        "fill": "none",
        "stroke-linecap": "round",
    }
    group = ET.SubElement(svg, "g")
    ET.SubElement(group, "title").text = (
        f"{instance} ({shown(instance.metapath)}): attention {instance.attention:.2%}, "
        f"hops {hops(instance)}"
    )
    x = SIDE + BOX
    bend = GAP * 0.6
    curve = f"M {x} {centre} C {x + bend} {centre} {x + GAP - bend} {y} {x + GAP} {y}"
    _add(group, "path", d=curve, **line)
    for position, name in enumerate(instance.nodes[1:], start=1):
        x += GAP
        share = f"{instance.hops[position]:.0%}"
        if instance.returns(position):
            _box(group, x, y, "itself", f"its own features {share}")
        else:
            _box(group, x, y, name, f"{instance.types[position]} {share}")
        x += BOX
        if position < len(instance.nodes) - 1:
            _add(group, "path", d=f"M {x} {y} H {x + GAP}", **line)
    _text(group, numbers, y - 5, f"part {part:+.4f}", weight="600")
    _text(group, numbers, y + 10, f"move {move:+.4f}   attention {instance.attention:.1%}", size=11)


def _box(svg: ET.Element, x: float, y: float, name: str, below: str) -> None:
    _add(
        svg, "rect", x=x, y=y - 14, width=BOX, height=28, rx=7, fill=PLAIN, fill_opacity=0.15,
        stroke=PLAIN,
    )  # fmt: skip
    _text(svg, x + BOX / 2, y + 4, name, room=BOX - 12, anchor="middle")
    _text(svg, x + BOX / 2, y + 25, below, room=BOX, anchor="middle", size=9, opacity="0.75")


def _fidelity(found: Fidelity) -> ET.Element:
    left, right, top, bottom = 90, 590, 64, 300
    svg = _svg(760, 370, _title(found))
    _text(svg, SIDE, 34, _title(found), size=16, weight="600")
    if not found.steps:
        _text(svg, SIDE, 80, "no node has more than one instance")
        return svg
    across = (right - left) / max(1, len(found.steps) - 1)
    most = max(max(step.top, step.random, step.alike) for step in found.steps) or 1

    def height(value: float) -> float:
        return round(bottom - (bottom - top) * value / most, 1)

    for share in (0, 0.25, 0.5, 0.75, 1):
        y = height(most * share)
        _add(svg, "path", d=f"M {left - 24} {y} H {right}", stroke=PLAIN, stroke_opacity=0.3)
        _text(svg, left - 30, y + 4, f"{most * share:.2g}", anchor="end", size=11)
    for name, colour, dash in (
        ("top", FOR, "none"),
        ("alike", AGAINST, "6 4"),
        ("random", AGAINST, "none"),
    ):
        values = [getattr(step, name) for step in found.steps]
        points = " ".join(f"{left + i * across:.1f},{height(v)}" for i, v in enumerate(values))
        _add(
            svg, "polyline", points=points, fill="none", stroke=colour, stroke_width=2.5,
            stroke_dasharray=dash,
        )  # fmt: skip
        words = "random, same metapaths" if name == "alike" else name
        _text(svg, right + 8, height(values[-1]) + 4, words, size=11, room=152)
    for i, step in enumerate(found.steps):
        x = left + i * across
        _text(svg, x, height(step.top) - 8, f"{step.ratio:.1f}×", anchor="middle", size=11)
        _text(svg, x, bottom + 18, f"k = {step.k}", anchor="middle", size=11)
        _text(svg, x, bottom + 32, f"{step.nodes} nodes", anchor="middle", size=9, opacity="0.75")
    about = f"Mean absolute move of the most likely label's logit; {found.draws} random draws."
    _text(svg, SIDE, 358, about, size=11, opacity="0.75")
    return svg


def _svg(width: float, height: float, title: str) -> ET.Element:
    svg = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width} {height}",
            "width": str(width),
            "height": str(height),
            "role": "img",
            "font-family": "system-ui, sans-serif",
        },
    )
    ET.SubElement(svg, "title").text = title
    return svg


def _add(parent: ET.Element, tag: str, **attributes: object) -> ET.Element:
    """Make an element of our own numbers and words; a name is never an attribute."""
    named = {key.replace("_", "-"): str(value) for key, value in attributes.items()}
    return ET.SubElement(parent, tag, named)


def _text(
    parent: ET.Element,
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    room: float = 1e9,
    anchor: str = "start",
    weight: str = "400",
    opacity: str = "1",
) -> None:
    """Write a line of text; one too long for its room is cut, and whole in the element's title."""
    text = shown(text)
    line = _add(
        parent, "text", x=x, y=y, fill="currentColor", font_size=size, text_anchor=anchor,
        font_weight=weight, opacity=opacity,
    )  # fmt: skip
    line.text = _cut(text, int(room / (LETTER * size / 12)))
    if line.text != text:
        title = ET.SubElement(line, "title")
        title.text = text


def _cut(text: str, letters: int) -> str:
    """Truncate a text to a number of letters."""
    for i in range(len(text) + 1):
        if _letters(text[:i]) > letters:
            return text[: max(0, i - 2)].rstrip() + "…"
    return text


def _letters(text: str) -> float:
    """Count letters; capitals count more, wide ones, as of Chinese, twice."""
    wide = (unicodedata.east_asian_width(c) in "WF" for c in text)
    return sum(2 if w else 1.3 if c.isupper() else 1 for c, w in zip(text, wide, strict=True))
