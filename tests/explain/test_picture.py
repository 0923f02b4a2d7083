"""Pictures show hostile names as text and nothing else."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest
import torch

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.explain import Explanation, Fidelity, Step, explain, save
from hanme.explain.explanation import shown
from hanme.explain.picture import AGAINST, FOR, _adding, draw
from hanme.nn import HANME

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]><svg onload=alert(1)>",
    "</title></style></svg><b>",
    "&lt;i&gt; &amp; &#x3c;u>",
    "a\x00b\x08c\x1b[31mred\x9b2J",
    "\ud800 lone, \ufffe none, \u202eturned",
    "javascript:alert(1)",
    "[bold red]markup[/] {0} %s",
    "字" * 80,
    "W" * 400,
    "",
]
TAGS = {"html", "head", "meta", "title", "style", "body", "svg", "g", "rect", "path", "polyline"}
TAGS |= {"text", "table", "tr", "th", "td", "div"}


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def hostile() -> Explanation:
    """An explanation in which every name is an attack."""
    graph = planted(movies=60, seed=483)
    for nodes in graph.nodes.values():
        nodes.names = [HOSTILE[i % len(HOSTILE)] for i in range(nodes.num_nodes)]
        nodes.ids = [f"{i}{HOSTILE[-(i % len(HOSTILE))]}" for i in range(nodes.num_nodes)]
    graph.labels[:] = HOSTILE[:5]
    torch.manual_seed(1)
    metapaths = [*graph.metapaths, "movie-actor-movie-keyword-movie"]
    net = HANME(graph.metadata(), "movie", metapaths, 5, heads=2, hidden_channels=16)
    return explain(net, graph, 0, top=len(HOSTILE))


def test_no_name_becomes_a_tag_or_an_attribute(hostile: Explanation, tmp_path: Path) -> None:
    save(hostile, tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    for page in (Page(text), Page(hostile._repr_html_())):
        assert page.tags <= TAGS
        for name, value in page.attributes:
            assert not name.startswith("on")
            assert name not in ("href", "src", "xlink:href", "id", "class", "style")
            assert "alert" not in value
            assert "script" not in value
        assert "<script>alert(1)</script>" in " ".join(page.words)  # it is text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in Page(text).attributes
    assert text.replace("http://www.w3.org/2000/svg", "").count("://") == 0
    assert "url(" not in text


def test_svg_is_xml_with_the_same_names(hostile: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.svg"
    save(hostile, path)
    root = ET.parse(path).getroot()
    tags = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
    assert tags <= TAGS
    words = " ".join(root.itertext())
    for instance in hostile.instances:
        for name in instance.nodes:
            assert shown(name) in words  # whole, if only in a title
    assert "\x1b" not in words
    assert "\ufffd" in words
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        assert 0 <= float(element.get("x", 0)) <= width
        assert 0 <= float(element.get("y", 0)) <= height


def test_colours_are_the_signs_of_the_parts_and_no_legend_is_cut(hostile: Explanation) -> None:
    colours = set()
    for label in hostile.logits:
        svg = draw(replace(hostile, label=label))
        texts = [element.text or "" for element in svg.iter("text")]
        parts = [text for text in texts if text.startswith("part ")]
        assert len(parts) == len(hostile.instances)
        strokes = [group.find("path").get("stroke") for group in svg.iter("g")]
        assert strokes == [FOR if text.startswith("part +") else AGAINST for text in parts]
        colours |= set(strokes)
    assert colours == {FOR, AGAINST}
    legend = " ".join(texts)
    for metapath, count in hostile.counts.items():
        assert f"{metapath} ({count:,})" in legend
    assert "Move: the logit with the instance minus without it." in legend
    assert sum(map(int, re.findall(r"(\d+) instances", legend))) == sum(hostile.counts.values())


def test_a_return_to_the_root_and_the_labels_given(hostile: Explanation) -> None:
    back = [i for i in hostile.instances if i.ids[-1] == i.ids[0]]
    assert back
    assert all(str(instance).endswith(" <- itself (its own features)") for instance in back)
    assert hostile.given
    assert set(hostile.chosen) >= {*hostile.given, *hostile.predicted, hostile.label}
    assert f"(given: {', '.join(map(shown, hostile.given))})" in hostile.title


def test_text_cannot_steer_a_terminal(hostile: Explanation) -> None:
    for text in (str(hostile), *map(str, hostile.instances)):
        assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)
        text.encode()
    heads, lines = 5, len(hostile.others) + len(hostile.instances) + len(hostile.metapaths)
    assert len(str(hostile).splitlines()) == heads + lines
    assert json.loads(json.dumps(hostile.to_dict()))["node"] == hostile.node


def test_only_pictures_are_written_and_replaced_whole(hostile: Explanation, tmp_path: Path) -> None:
    for name in ("a.png", "a", "a.svg.txt", ".svg"):
        with pytest.raises(HanmeError, match=r"ends with \.svg or \.html"):
            save(hostile, tmp_path / name)
    (tmp_path / "a.SVG").write_text("old")
    save(hostile, tmp_path / "a.SVG")
    assert [path.name for path in tmp_path.iterdir()] == ["a.SVG"]
    assert (tmp_path / "a.SVG").read_text(encoding="utf-8").startswith("<svg")


def test_it_shows_itself_below_a_cell_or_in_a_browser(
    hostile: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    hostile.show()
    (address,) = opened
    page = Page(Path(unquote(urlsplit(address).path)).read_text(encoding="utf-8"))
    words = " ".join(page.words)
    for name in (*hostile.parts, *hostile.others, "logit"):
        assert name in words
    below: list[object] = []
    kernel = SimpleNamespace(kernel=True)
    display = SimpleNamespace(display=below.append)
    notebook = SimpleNamespace(get_ipython=lambda: kernel, display=display)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    hostile.show()
    assert below == [hostile]
    assert len(opened) == 1


def test_the_sum_adds_up(hostile: Explanation) -> None:
    rows = [cells.itertext() for cells in _adding(hostile)[1:]]
    numbers = [[float(text) for text in list(row)[1:]] for row in rows]
    for column in zip(*numbers, strict=True):
        assert sum(column[:-1]) == pytest.approx(column[-1], abs=1e-3)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_fidelity_is_a_curve(steps: int, tmp_path: Path) -> None:
    found = Fidelity(
        "part", 9, 0, 5, 1, tuple(Step(k + 1, 9 - k, k / 2, k / 3, k / 3) for k in range(steps))
    )
    save(found, tmp_path / "f.svg")
    assert len(list(ET.parse(tmp_path / "f.svg").getroot().iter())) > 3
    assert Page(found._repr_html_()).tags <= TAGS
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["nodes"] == 9
