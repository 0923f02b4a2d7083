"""The page, in a real browser: what a person sees, by mouse, keyboard and screen reader.

With HANME_SCREENSHOTS=docs/images in the environment, the run makes the pictures of docs/serve.md.
"""

import csv
import io
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from urllib.parse import quote

import pytest
import uvicorn
from playwright import sync_api as playwright

from browsing import PHONE, PICTURES, TOKEN, WIDE, Visitor, visiting
from hanme import Classifier, Graph
from hanme.serve.changes import change, effects
from hanme.serve.overview import overview
from hanme.serve.report import write_report
from hanme.serve.schemas import Changes, Question
from hanme.serve.served import ServedRun, load_runs
from serving import HOSTILE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SMALL = {"hidden_channels": 16, "heads": 2}
BESIDE = {"films": "paths", "planted": "paper"}
TAKEN = "<b onclick=alert(1)>&amp;'%"


@pytest.fixture(scope="module")
def served(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ServedRun]:
    """Two runs on the tutorial's films, and those that all tests of the server share."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(ROOT / "examples" / "films", folder / "tables")
    script = (ROOT / "examples" / "films.py").read_text()
    text = re.search(r'GRAPH = """\\\n(.*?)"""', script, re.DOTALL)
    assert text
    (folder / "tables" / "graph.toml").write_text(text[1])
    graph = Graph.from_tables(folder / "tables")
    options, training = ({}, {}) if PICTURES else (SMALL, {"epochs": 8})
    with patch("hanme.training.trainer.GAIN", -1.0):  # the network stays in any case
        Classifier(options=options, training=training).fit(graph, out=folder / "films")
    paths = Classifier(options=options, training=training | {"linear": False})
    paths.fit(graph, out=folder / "paths")
    shared = (runs / name for name in ("planted", "paper", "closed", "hostile"))
    shutil.copytree(runs / "hostile", folder / TAKEN)  # a run whose name is hostile, too
    return load_runs([folder / "films", folder / "paths", *shared, folder / TAKEN])


@pytest.fixture(scope="module")
def address(served: dict[str, ServedRun]) -> Iterator[str]:
    """Serve the runs from a thread."""
    from hanme.serve.app import make_app
    from hanme.serve.server import Guard

    server = uvicorn.Server(
        uvicorn.Config(Guard(make_app(served), token=TOKEN), port=0, log_level="warning")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(5)


@pytest.fixture(params=[WIDE, PHONE], ids=["wide", "phone"])
def visitor(browser, address: str, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    scheme = "light" if request.param == WIDE else "dark"
    with visiting(browser, address, request.param, scheme) as person:
        yield person


@pytest.fixture
def wide(browser, address: str) -> Iterator[Visitor]:
    with visiting(browser, address, WIDE, "light") as person:
        yield person


on_both = pytest.mark.parametrize("run", ["films", "planted"])
"""On the tutorial's films, with one label each and ids, and on planted movies, with several."""

in_turn = pytest.mark.parametrize(
    ("visitor", "run"),
    [(WIDE, "films"), (PHONE, "planted")],
    ids=["wide-films", "phone-planted"],
    indirect=["visitor"],
)
"""The same, each on another screen."""


@on_both
def test_the_overview_says_how_good_it_is(
    visitor: Visitor, served: dict[str, ServedRun], run: str
) -> None:
    visitor.go(f"#/{run}/overview", run)
    scores = served[run].run.result["scores"]
    own = scores.get("decided", scores["with_fallback"])["test"]
    text = visitor.text()
    assert f"{own['micro']:.1f} %" in text
    new = served[run].table
    assert f"{(~new.labelled).sum()} new: {(~new.labelled & new.confident).sum()} confident" in text
    for words in (
        "How good is it?",
        "always the most common label",
        "Can its probabilities be trusted?",
        "What does it mistake for what?",
        "Which labels is it weak at?",
    ):
        assert words in text
    visitor.page.get_by_text("Details of the model").click()
    assert "How did it learn?" in visitor.text()
    for label in served[run].graph.labels:
        assert label in text
    visitor.page.get_by_text("Show as a table: Scores").click()
    assert visitor.page.get_by_role("table", name="Scores", exact=True).is_visible()
    visitor.accessible()
    if run == "films":
        visitor.page.get_by_text("Show as a table: Scores").click()
        visitor.picture("overview" if visitor.page.viewport_size["width"] > 400 else "phone")
    weakest = visitor.page.get_by_text("See its mistakes").locator("a").first
    label = weakest.inner_text()
    weakest.click()
    playwright.expect(visitor.page.locator("#by-true")).to_have_value(label)


@in_turn
def test_nodes_are_filtered_sorted_and_downloaded(
    visitor: Visitor, served: dict[str, ServedRun], run: str
) -> None:
    table, page = served[run].table, visitor.page
    rows, label = [table.row(i) for i in range(len(table))], table.graph.labels[0]
    total = page.locator(".total b")
    visitor.go(f"#/{run}/nodes", f"{table.graph.target.capitalize()}s")
    wrong = [row for row in rows if row.wrong]
    page.get_by_role("button", name="Wrong").click()
    playwright.expect(total).to_have_text(str(len(wrong)))
    assert "show=wrong" in visitor.hash()
    shown = page.locator("tbody th a > bdi").all_inner_texts()
    assert shown == [row.name for row in sorted(wrong, key=lambda row: -row.surprise)][:50]
    page.get_by_role("button", name="New", exact=True).click()
    unlabelled = [row for row in rows if not row.labels]
    playwright.expect(total).to_have_text(str(len(unlabelled)))
    page.locator("#by-predicted").select_option(label)
    given = [row.name for row in unlabelled if label in row.predicted]
    playwright.expect(total).to_have_text(str(len(given)))
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as CSV").click()
    file = csv.DictReader(io.StringIO(Path(download.value.path()).read_text()))
    assert sorted(row["name"] for row in file) == sorted(given)
    page.go_back()
    playwright.expect(total).to_have_text(str(len(unlabelled)))
    page.go_back()
    playwright.expect(total).to_have_text(str(len(wrong)))
    page.locator("#show-uncertain").click()
    page.wait_for_selector('th[aria-sort="descending"] #sort-uncertain')
    shown = page.locator("tbody tr td:nth-child(5)").all_inner_texts()
    assert list(map(float, shown)) == sorted(map(float, shown), reverse=True)
    page.locator("#sort-uncertain").click()
    page.wait_for_selector('th[aria-sort="ascending"] #sort-uncertain')
    visitor.accessible()
    if run == "films" and page.viewport_size["width"] > 400:
        visitor.go("#/films/nodes?show=surprising", "Films")
        visitor.picture("nodes")


def test_typing_filters_and_keeps_the_focus(wide: Visitor) -> None:
    page = wide.page
    wide.go("#/films/nodes", "Films")
    page.locator("#by-q").press_sequentially("Borrowed Letter", delay=20)
    playwright.expect(page.locator("tbody th a > bdi").first).to_have_text("The Borrowed Letter")
    assert page.evaluate("document.activeElement.id") == "by-q"
    page.locator("#by-q").fill("no such film at all")
    playwright.expect(page.locator(".empty")).to_contain_text("No films fit")
    page.get_by_role("button", name="Clear all filters").click()
    playwright.expect(page.locator(".total b")).to_have_text("120")
    page.get_by_role("button", name="Next").click()
    playwright.expect(page.locator(".pages span")).to_have_text("Page 2 of 3")
    assert "page=2" in wide.hash()


@in_turn
def test_a_node_shows_what_and_why(
    visitor: Visitor, served: dict[str, ServedRun], run: str
) -> None:
    own, page = served[run], visitor.page
    row = own.table.row(10)
    visitor.go(f"#/{run}/node/10", row.name)
    best = max(range(len(row.probabilities)), key=row.probabilities.__getitem__)
    label = own.graph.labels[best]
    found = own.explain(10, Question())
    assert visitor.text(".sentence") == found.sentence
    text = visitor.text()
    assert f"Why {label}?" in text
    assert f"{100 * row.probabilities[best]:.0f} %" in text
    steps = page.locator(".waterfall li")
    for item, reason in zip(steps.all()[1:-1], found.reasons[:8], strict=False):
        assert reason.text in item.inner_text()
        assert reason.evidence in item.inner_text()
        assert f"{100 * reason.step:.0f} %" in item.inner_text() or reason.step > 0.99
    assert f"{100 * row.probabilities[best]:.0f} %" in steps.last.inner_text()
    node = own.node_info(own.graph.target, 10, 99)
    for group in node.links:
        assert all(other.name in text for other in group.nodes)
    for cell in node.columns:
        assert cell.value is None or cell.value in text
    visitor.plain()
    other = next(name for name in own.graph.labels if name != label)
    page.get_by_role("button", name=re.compile(f"^Why {other}")).click()
    page.get_by_role("heading", name=f"Why {other}?").wait_for()
    assert f"label={other}" in visitor.hash()
    page.go_back()
    page.get_by_role("heading", name=f"Why {label}?").wait_for()
    visitor.accessible()
    if run == "films" and page.viewport_size["width"] > 400:
        visitor.picture("node")


def test_the_graph_is_hovered_zoomed_dragged_and_followed(wide: Visitor) -> None:
    page = wide.page
    wide.go("#/films/node/10", "The Borrowed Letter")
    page.get_by_text("Details of the model").click()
    end = page.locator(".graph .node.target").first
    end.hover()
    assert page.locator("tr.lit").count() >= 1
    assert "of the attention" in wide.text(".picked")
    page.get_by_role("button", name="Zoom in").first.click()
    assert "scale(1.25)" in page.locator(".graph > g").first.get_attribute("transform")
    page.get_by_role("button", name="Reset").first.click()
    before, box = end.get_attribute("transform"), end.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] - 40, box["y"] + 30, steps=4)
    page.mouse.up()
    assert end.get_attribute("transform") != before
    assert wide.hash() == "#/films/node/10"  # a drag is no click
    page.mouse.wheel(0, 400)
    page.locator(".picked").first.scroll_into_view_if_needed()
    canvas = page.locator(".graph").first.bounding_box()
    page.mouse.move(canvas["x"] + 5, canvas["y"] + canvas["height"] - 5)
    page.mouse.down()
    page.mouse.move(canvas["x"] + 45, canvas["y"] + canvas["height"] - 15, steps=3)
    page.mouse.up()
    assert "translate(40 -10)" in page.locator(".graph > g").first.get_attribute("transform")
    page.get_by_role("button", name="Reset").first.click()
    page.locator(".graph .node.target[data-key^='2:']").first.click()
    near = page.locator(".graph a.node.near")
    near.first.hover()  # it belongs to no path
    assert near.count() <= 12
    title = near.first.locator("title").text_content().rpartition(", ")[0]
    wide.accessible()
    near.first.click()
    wide.seen(title)
    page.go_back()
    wide.seen("The Borrowed Letter")
    near.first.wait_for()  # the address holds what is expanded
    page.get_by_role("button", name="Hide them").click()
    near.first.wait_for(state="detached")
    assert wide.hash() == "#/films/node/10"


@in_turn
def test_an_expanded_node_shows_its_own_neighbours(
    visitor: Visitor, served: dict[str, ServedRun], run: str
) -> None:
    page, own = visitor.page, served[run]
    visitor.go(f"#/{run}/node/10", own.table.row(10).name)
    page.get_by_text("Details of the model").click()
    drawn = {
        title.rpartition(", ")[0] for title in page.locator(".graph title").all_text_contents()
    }
    for chosen in page.locator(".graph .node.target[data-key^='2:']").all():
        number = int(chosen.get_attribute("data-key").removeprefix("2:"))
        links = own.node_info(own.graph.target, number, 12).links
        names = {other.name for group in links for other in group.nodes}
        if names - drawn:  # the others have all their neighbours in the picture already
            break
    chosen.focus()
    page.keyboard.press("Enter")
    playwright.expect(page.locator(".graph .node:focus")).to_have_attribute("aria-expanded", "true")
    titles = page.locator(".graph a.node.near title").all_text_contents()
    assert titles
    assert {title.rpartition(", ")[0] for title in titles} <= names
    page.keyboard.press("Enter")
    playwright.expect(page.locator(".graph .node:focus")).to_have_attribute(
        "aria-expanded", "false"
    )
    assert "expand" not in visitor.hash()


def test_what_gives_the_label_away_comes_first(
    wide: Visitor, served: dict[str, ServedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"name": "year", "roc_auc": 0.99, "remedy": "delete year"}
    found = {"roc_auc": 0.999, "sources": [source], "without": {"roc_auc": 0.7}}
    monkeypatch.setitem(served["films"].run.result, "suspicion", found)
    changed = overview(served["films"])
    wide.page.route("**/runs/films/overview", lambda route: route.fulfill(json=changed))
    wide.go("#/films/overview", "films")
    notice = wide.page.get_by_role("alert")
    playwright.expect(notice).to_contain_text("year alone reaches 0.990: is it known when")
    text = wide.text()
    assert text.index("year alone") < text.index("How good is it?")
    wide.accessible()


def test_a_late_search_result_does_not_take_the_focus(wide: Visitor) -> None:
    page = wide.page
    wide.go("#/films/overview", "films")
    page.locator("#find").focus()
    page.keyboard.type("borrowed lette")
    playwright.expect(page.locator("#found a").first).to_contain_text("The Borrowed Letter")
    held: list[playwright.Route] = []
    page.route("**/search?q=borrowed*letter*", lambda route: held.append(route))
    with page.expect_request("**/search?q=borrowed*letter*"):
        page.keyboard.type("r")
    page.keyboard.press("ArrowDown")
    held[0].continue_()
    page.wait_for_timeout(1500)
    page.unroute_all(behavior="wait")
    assert page.evaluate("document.activeElement.tagName") == "A"


def test_the_keyboard_goes_everywhere(wide: Visitor) -> None:
    page = wide.page
    wide.go("#/films/overview", "films")
    page.keyboard.press("Tab")
    assert "Skip" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert wide.hash() == "#/films/overview"
    page.locator("#find").focus()
    page.keyboard.type("borowed leter")  # misspelt
    playwright.expect(page.locator("#found a").first).to_contain_text("The Borrowed Letter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("h1")).to_have_text("The Borrowed Letter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    wide.tab_to("summary")
    page.keyboard.press("Enter")
    page.locator(".graph .node[tabindex='0']").first.focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    for _ in range(12):  # as many as the picture shows; the film itself cannot be expanded
        page.keyboard.press("ArrowDown")
        here = page.evaluate("document.activeElement.querySelector('title').textContent")
        if here.endswith("film: show neighbours"):
            break
    assert here.endswith("film: show neighbours")
    page.keyboard.press("+")
    assert "scale(1.25)" in page.locator(".graph > g").first.get_attribute("transform")
    page.keyboard.press("Enter")
    page.locator(".opened a").focus()
    page.keyboard.press("Enter")
    wide.seen(here.removesuffix(", film: show neighbours"))
    page.get_by_role("link", name="What if?").focus()
    page.keyboard.press("Enter")
    page.locator("#link-0-0").focus()
    page.keyboard.press("Space")
    page.get_by_role("heading", name="The answer now").wait_for()
    assert page.evaluate("document.activeElement.id") == "link-0-0"
    assert "→" in wide.text("#said")


@in_turn
def test_what_if_takes_links_away_and_adds_them(
    visitor: Visitor, served: dict[str, ServedRun], run: str
) -> None:
    page, own = visitor.page, served[run]
    node = own.node_info(own.graph.target, 10, 99)
    visitor.go(f"#/{run}/what-if/10", node.name)
    page.locator("#apply").wait_for()  # every single change has been tried
    links = sum(len(group.nodes) for group in node.links)
    assert page.locator(".effect", has_text="without it").count() == links
    first, last = node.links[0], node.links[-1]
    page.locator(".ticks input").first.uncheck()
    page.get_by_role("heading", name="The answer now").wait_for()
    assert f"cut={first.relation}" in visitor.hash()
    cut = {"relation": first.relation, "source": 10, "target": first.nodes[0].number}
    after = change(own, 10, Changes(remove=[cut]))["after"]
    best = page.locator(".outcome .value").first.inner_text()
    label = own.graph.labels.index(page.locator(".outcome .label").first.inner_text())
    assert best.endswith(f"{100 * after.probabilities[label]:.0f} %")
    there = {other.number for other in last.nodes}
    new = next(i for i in range(own.graph.nodes[last.type].num_nodes) if i not in there)
    page.locator("#add-relation").select_option(last.relation)
    page.locator("#add-name").fill(own.node(last.type, new).name)
    page.get_by_role("button", name=re.compile("^Add ")).first.click()
    page.locator("#added-0").wait_for()
    changed, columns = page.locator(".outcome"), int(run == "films")
    if columns:
        page.locator("#cell-0").fill("1931")
        page.locator("#cell-0").press("Enter")
    words = f"1 link taken away, 1 added, {columns} column"
    playwright.expect(changed).to_contain_text(words)
    shared = page.url
    page.reload()
    visitor.seen(node.name)
    playwright.expect(changed).to_contain_text(words)
    assert page.url == shared
    visitor.accessible()
    visitor.plain()
    page.get_by_role("button", name="Undo all").click()
    page.get_by_role("heading", name="The answer as it is").wait_for()


def test_what_would_change_it_is_found(wide: Visitor, served: dict[str, ServedRun]) -> None:
    page, own = wide.page, served["films"]
    rows = [row for row in map(own.table.row, range(120)) if row.predicted == ["Thriller"]]
    node = max(rows, key=lambda row: row.uncertainty).node
    wide.go(f"#/films/node/{node}")
    page.get_by_role("heading", name="Why Thriller?").wait_for()
    page.get_by_role("link", name="What would change it?").click()
    page.locator("#apply").wait_for()
    first = effects(own, node, "Thriller").effects[0]
    assert first.text in wide.text(".most")
    assert f"to {100 * first.probability:.0f} %" in wide.text(".most")
    assert ("smallest change" in wide.text(".most")) == first.flips
    page.locator("#apply").click()
    page.locator(".verdict").wait_for()
    assert ("The answer changes" in wide.text(".verdict")) == first.flips
    wide.picture("what-if")


@in_turn
def test_two_runs_are_compared(visitor: Visitor, served: dict[str, ServedRun], run: str) -> None:
    page, other = visitor.page, BESIDE[run]
    visitor.go(f"#/{run}/compare/{other}", "Where do they differ?")
    ours, theirs = served[run].table, served[other].table
    differ = sum(ours.row(i).predicted != theirs.row(i).predicted for i in range(len(ours)))
    assert f"{differ} {ours.graph.target}s of {len(ours)}" in visitor.text()
    for words in ("Who is right?", "Whose scores are better?"):
        assert words in visitor.text()
    visitor.accessible()
    if run == "films" and page.viewport_size["width"] > 400:
        visitor.picture("compare")
    first = page.locator("tbody th a").first
    title = first.locator("bdi").first.inner_text()
    first.click()
    visitor.seen(title)
    assert page.get_by_role("heading", name="What the model says").count() == 2
    visitor.accessible()


@in_turn
def test_any_node_can_be_followed(visitor: Visitor, served: dict[str, ServedRun], run: str) -> None:
    page, own = visitor.page, served[run]
    row = own.table.row(10)
    visitor.go(f"#/{run}/node/10", row.name)
    middle = page.locator(".data .ticks a").first
    title = middle.inner_text()
    middle.click()
    visitor.seen(title)
    assert "/other/" in visitor.hash()
    assert row.name in page.locator("tbody th a > bdi").all_inner_texts()
    visitor.accessible()
    page.get_by_role("link", name=row.name).first.click()
    visitor.seen(row.name)
    page.locator("#find").fill(title)
    page.locator("#found a", has_text=title).first.click()
    visitor.seen(title)


@pytest.mark.parametrize("visitor", [PHONE], ids=["phone"], indirect=True)
def test_hostile_names_are_text(
    visitor: Visitor, served: dict[str, ServedRun], tmp_path: Path
) -> None:
    page, taken = visitor.page, quote(TAKEN, safe="")
    views = ("overview", "nodes", "node/0", "what-if/0", "node/3", "other/person/0")
    beside = ("", "/compare/hostile/0", "/compare/hostile?show=all", "/other/person/3")
    markup = "body b[onclick], main script, body img:not([src='icon.svg'])"
    for hash_ in [f"hostile/{view}" for view in views] + [f"{taken}{view}" for view in beside]:
        page.evaluate("document.querySelector('main h1')?.remove()")  # that of the view before
        visitor.go(f"#/{hash_}")
        page.locator("#find").fill("long")
        page.locator("#found a").first.wait_for()
        assert page.locator(markup).count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.locator("body").inner_text())
    visitor.go("#/hostile/node/0")
    assert HOSTILE[0] in visitor.text()
    visitor.accessible()
    write_report(served["hostile"], tmp_path / "r.html", range(5))
    visitor.expected.append(f"asked file://{tmp_path}")
    page.goto((tmp_path / "r.html").as_uri())
    page.get_by_role("heading", name="How good is it?").wait_for()
    assert HOSTILE[0] in visitor.text("main")
    assert page.locator("main script, main img").count() == 0


def test_a_model_without_instances_still_has_its_predictions(wide: Visitor) -> None:
    wide.go("#/closed/overview", "closed")
    wide.go("#/closed/node/3")
    assert "cannot be explained" in wide.text(".note")
    assert "What the model says" in wide.text()
    assert wide.page.get_by_role("link", name="What if?").count() == 0
    wide.go("#/closed/what-if/3", "That did not work")


def test_colours_turn_and_stay(wide: Visitor) -> None:
    page = wide.page
    wide.go("#/films/overview")
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.locator("#theme").click()
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert dark != light
    page.reload()
    wide.seen()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark


def test_what_goes_wrong_is_said(wide: Visitor, served: dict[str, ServedRun]) -> None:
    page = wide.page
    wide.expected += ["404", "422", "409"]
    for hash_, words in (
        ("#/nothing/overview", "There is no run nothing"),
        ("#/films/elsewhere", "There is no page elsewhere"),
        ("#/films/node/99999", "99999"),
        ("#/films/node/10?label=Western", "Western"),
        ("#/films/compare/planted", "differ"),
        ("#/%E0%A4%A/overview", "There is no run"),
    ):
        wide.go(hash_, "That did not work")
        playwright.expect(page.locator("[role=alert]")).to_contain_text(words)
    page.get_by_role("link", name="Back to the start").click()
    wide.seen("films")
    wide.expected.append("ERR_FAILED")
    page.route("**/api/v1/**", lambda route: route.abort())
    wide.page.evaluate("location.hash = '#/films/nodes?q=x'")
    playwright.expect(page.locator("[role=alert]")).to_contain_text("Is hanme serve still running?")


def test_the_report_needs_nothing_else(
    wide: Visitor, served: dict[str, ServedRun], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_report(served["films"], path, ["f011", "The Amber Lantern"])
    text = path.read_text()
    assert "default-src 'none'; script-src 'sha256-" in text
    wide.expected.append(f"asked {path.as_uri()}")
    page = wide.page
    page.goto(path.as_uri())
    page.get_by_role("heading", name="How good is it?").wait_for()
    assert [h.inner_text() for h in page.locator("h1").all()] == [
        "films", "The Borrowed Letter", "The Amber Lantern"
    ]  # fmt: skip
    assert page.locator(".sentence").count() == 2
    page.get_by_text("Details of the model").last.click()
    page.locator("svg.graph").last.wait_for()
    wide.accessible()
