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
from hanme.explain.explanation import percent, signed
from hanme.explain.picture import AGAINST, CHIPS, FAINT, FOR, LABELS, LINKS, draw
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
TAGS |= {"text", "table", "tr", "th", "td", "div", "p", "details", "summary"}


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
    return explain(net, graph, 0, instances=len(HOSTILE))


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
    for reason in hostile.reasons[:10]:
        assert printable(reason.text) in words  # whole, if only in a title
    assert "\x1b" not in words
    assert "\ufffd" in words
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        assert 0 <= float(element.get("x", 0)) <= width
        assert 0 <= float(element.get("y", 0)) <= height


def test_colour_and_width_are_sign_and_size_of_the_contributions(hostile: Explanation) -> None:
    colours = set()
    for label in hostile.logits:
        svg = draw(replace(hostile, label=label))
        links = [one.contributions[label] for one in hostile.reasons if one.kind == "link"][:LINKS]
        own = [one.contributions[label] for one in hostile.reasons if one.kind == "column"]
        values = [*links, sum(own)]  # columns are drawn as one
        lines = list(svg.iter("path"))
        assert [line.get("stroke") for line in lines] == [FOR if x > 0 else AGAINST for x in values]
        most = max(map(abs, values))
        for key, least, more in (("stroke-width", 1.5, 9), ("stroke-opacity", FAINT, 1 - FAINT)):
            expected = [least + more * abs(x) / most for x in values]
            assert [float(line.get(key)) for line in lines] == pytest.approx(expected, abs=0.02)
        colours |= {line.get("stroke") for line in lines}
    assert colours == {FOR, AGAINST}
    assert "own columns" in " ".join(svg.itertext())


def test_a_waterfall_leads_from_the_base_rate_to_the_prediction(hostile: Explanation) -> None:
    svg = draw(hostile)
    texts = [text.text or "" for text in svg.iter("text")]
    rows = [text.split("→ ") for text in texts if "→" in text]
    shown = [one.contributions[hostile.label] for one in hostile.reasons[:10]]
    expected = [signed(value) for value in (hostile.base[hostile.label], *shown)]
    assert [value.strip() for value, _ in rows[: len(expected)]] == expected
    assert [p for _, p in rows[: len(expected)]] == [*map(percent, hostile.steps[: len(expected)])]
    assert rows[-1][1] == percent(hostile.probabilities[hostile.label])
    assert percent(hostile.base_rate[hostile.label]) in texts


def test_nodes_behind_a_link_have_the_colours_of_their_labels(hostile: Explanation) -> None:
    svg, labels = draw(hostile), list(hostile.logits)
    links = [one for one in hostile.reasons if one.kind == "link"][:LINKS]
    chips = [rect.get("fill") for rect in svg.iter("rect") if rect.get("rx") == "12"]
    shown = [given[0] for one in links for _, _, given in one.sharing[:CHIPS]]
    assert chips == [LABELS[labels.index(label) % len(LABELS)] for label in shown]
    assert len(set(chips)) > 1


def test_details_are_collapsed(hostile: Explanation) -> None:
    page = hostile._repr_html_()
    before, details = page.split("<details>")
    assert "movie-actor-movie" in details
    assert "movie-actor-movie" not in before
    back = [i for i in hostile.details.instances if i.returns()]
    assert back
    assert all(str(instance).endswith(" <- itself (its own features)") for instance in back)
    assert f"(true: {', '.join(map(printable, hostile.true))})" in hostile.title


def test_text_cannot_steer_a_terminal(hostile: Explanation) -> None:
    for text in (hostile.text(details=True), *map(str, hostile.details.instances)):
        assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)
        text.encode()
    assert len(str(hostile).splitlines()) == len(hostile.rows()) + 3
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
        total = sum(value for _, value in hostile.details.summands(label))
        assert total == pytest.approx(logit, abs=1e-5)
