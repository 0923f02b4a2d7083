"""Pictures show hostile names as text and nothing else."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch

from hanme.common.text import printable
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.explain import Explanation, explain, save
from hanme.explain.picture import AGAINST, FOR, draw
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
TAGS = {"html", "head", "meta", "title", "style", "body", "svg", "g", "rect", "path"}
TAGS |= {"text", "table", "tr", "th", "td", "div", "p"}


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
            assert printable(name) in words  # whole, if only in a title
    assert "\x1b" not in words
    assert "\ufffd" in words
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        assert 0 <= float(element.get("x", 0)) <= width
        assert 0 <= float(element.get("y", 0)) <= height


def test_colour_and_width_are_sign_and_size_of_the_parts(hostile: Explanation) -> None:
    colours = set()
    for label in hostile.logits:
        svg = draw(replace(hostile, label=label))
        groups = list(svg.iter("g"))
        back = [i.parts[label] for i in hostile.instances if i.returns()]
        assert len(groups) == len(hostile.instances) - len(back) + 1  # those are drawn as one
        texts = [[text.text or "" for text in group.iter("text")] for group in groups]
        drawn = {i.returns() or i.numbers: i.parts[label] for i in hostile.instances}
        drawn[True] = sum(back)
        parts = list(drawn.values())
        assert ["itself" in some for some in texts] == [key is True for key in drawn]
        assert [some[-1] for some in texts] == [f"part {part:+.4f}" for part in parts]
        lines = [group.find("path") for group in groups]
        assert [line.get("stroke") for line in lines] == [FOR if x > 0 else AGAINST for x in parts]
        widths = [float(line.get("stroke-width")) for line in lines]
        most = max(map(abs, parts))
        assert widths == pytest.approx([1.5 + 7 * abs(x) / most for x in parts], abs=0.02)
        colours |= {line.get("stroke") for line in lines}
    assert colours == {FOR, AGAINST}
    words = " ".join(svg.itertext())
    for metapath, count in hostile.counts.items():
        assert metapath in words
        assert f"{count:,} instances" in words


def test_a_return_to_the_root_and_the_labels_given(hostile: Explanation) -> None:
    back = [i for i in hostile.instances if i.ids[-1] == i.ids[0]]
    assert back
    assert all(str(instance).endswith(" <- itself (its own features)") for instance in back)
    assert hostile.given
    page = " ".join(Page(hostile._repr_html_()).words)
    for label in {*hostile.given, *hostile.predicted, hostile.label}:
        assert f"part of {printable(label)}" in page
    assert f"(given: {', '.join(map(printable, hostile.given))})" in hostile.title


def test_text_cannot_steer_a_terminal(hostile: Explanation) -> None:
    for text in (str(hostile), *map(str, hostile.instances)):
        assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)
        text.encode()
    heads, lines = 4, len(hostile.summands) + len(hostile.instances)
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


def test_the_sum_adds_up(hostile: Explanation) -> None:
    for label, logit in hostile.logits.items():
        total = sum(parts[label] for parts in hostile.summands.values())
        assert total == pytest.approx(logit, abs=1e-5)
