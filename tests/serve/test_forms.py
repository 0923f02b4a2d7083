"""The forms of the page, filled in by a person: a key at a time, while answers arrive late."""

from __future__ import annotations

import asyncio
import csv
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import uvicorn
from playwright import sync_api as playwright

from browsing import TOKEN, WIDE, Visitor, visiting
from hanme import Classifier, Graph
from hanme.serve.changes import predict_rows
from hanme.serve.schemas import NewRow
from hanme.serve.served import ServedRun, load_runs

pytestmark = pytest.mark.slow
LATE = 0.7
"""Seconds that each answer about a new row waits: some keys are pressed meanwhile."""


def contracts(folder: Path) -> Path:
    """Write customers of a telephone company; tenure and charges decide who leaves."""
    rng = random.Random(3)
    rows = [["id", "tenure", "monthly", "total", "contract", "leaves"]]
    for i in range(160):
        tenure, monthly = rng.randrange(1, 73), rng.randrange(1800, 11900) / 100
        leaves = monthly > 30 + tenure if rng.random() < 0.9 else monthly <= 30 + tenure
        label = "" if i % 8 == 0 else "yes" if leaves else "no"
        numbers = [tenure, f"{monthly:.2f}", f"{tenure * monthly:.2f}"]
        rows.append([f"c{i}", *map(str, numbers), rng.choice(["monthly", "yearly"]), label])
    with (folder / "customers.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    (folder / "graph.toml").write_text(
        'target = "customer"\n'
        '[nodes.customer]\ntable = "customers.csv"\nid = "id"\nlabel = "leaves"\n'
        '[nodes.customer.features]\ntenure = "number"\nmonthly = "number"\ntotal = "number"\n'
        '[relations.contract]\ncolumns = "contract"\n'
    )
    return folder / "graph.toml"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ServedRun:
    folder = tmp_path_factory.mktemp("telco")
    graph = Graph.from_tables(contracts(folder))
    Classifier("linear").fit(graph, out=folder / "telco")
    (run,) = load_runs([folder / "telco"]).values()
    return run


@pytest.fixture(scope="module")
def address(served: ServedRun) -> Iterator[str]:
    """Serve the run from a thread, with late answers about new and changed rows."""
    from hanme.serve.app import make_app
    from hanme.serve.server import Guard

    guard = Guard(make_app({served.name: served}), token=TOKEN)

    async def late(scope, receive, send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            await asyncio.sleep(LATE)
        await guard(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(late, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(5)


@pytest.fixture
def wide(browser, address: str) -> Iterator[Visitor]:
    with visiting(browser, address, WIDE, "light") as person:
        yield person


def typed(page: playwright.Page, text: str, rng: random.Random) -> None:
    """Type as a person does: 60 to 250 ms per key."""
    for key in text:
        page.keyboard.press(key)
        page.wait_for_timeout(rng.uniform(60, 250))


def written(visitor: Visitor) -> dict[str, str]:
    """Return the cells that the address sets."""
    return dict(one.split("=", 1) for one in parse_qs(visitor.hash().partition("?")[2])["set"])


ROW = {"tenure": "41", "monthly": "70.35", "total": "2884.35"}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_typed_into_a_new_row_is_kept(wide: Visitor, served: ServedRun, seed: int) -> None:
    page, rng = wide.page, random.Random(seed)
    wide.go(f"#/{served.name}/new", "New customer")
    page.locator("#cell-0").focus()
    for text in ROW.values():
        typed(page, text, rng)
        page.keyboard.press("Tab")
    fields = [page.locator(f"#cell-{i}") for i in range(3)]
    assert [field.input_value() for field in fields] == list(ROW.values())
    (new,) = predict_rows(served, [NewRow(columns=ROW)])
    playwright.expect(page.locator(".sentence")).to_have_text(new.explanation.sentence)
    assert written(wide) == ROW
    assert [field.input_value() for field in fields] == list(ROW.values())


def test_a_cell_that_is_no_number_leaves_the_form(wide: Visitor, served: ServedRun) -> None:
    page, rng = wide.page, random.Random(0)
    wide.expected.append("422")
    wide.go(f"#/{served.name}/new", "New customer")
    page.locator("#cell-0").focus()
    typed(page, "4x", rng)
    playwright.expect(page.locator("[role=alert]")).to_contain_text("4x")
    page.keyboard.press("Backspace")
    typed(page, "1", rng)
    page.locator(".sentence").wait_for()
    assert written(wide) == {"tenure": "41"}
    page.go_back()  # a column is undone as a whole
    page.get_by_text("Fill in a column").wait_for()
    assert page.locator("#cell-0").input_value() == ""


def test_a_name_that_is_sought_stays_while_an_answer_arrives(
    wide: Visitor, served: ServedRun
) -> None:
    page, rng = wide.page, random.Random(0)
    for view, heading in (("new", "New customer"), ("what-if/3", served.table.row(3).name)):
        wide.go(f"#/{served.name}/{view}", heading)
        page.locator("#cell-0").fill("7")
        page.locator("#add-name").focus()
        typed(page, "yearly", rng)
        page.wait_for_timeout(1500)
        assert page.locator("#add-name").input_value() == "yearly"
        assert page.evaluate("document.activeElement.id") == "add-name"
        assert written(wide) == {"tenure": "7"}


def test_typing_into_the_filter_loses_nothing(wide: Visitor, served: ServedRun) -> None:
    page = wide.page
    page.route("**/predictions?*", lambda route: (page.wait_for_timeout(80), route.continue_()))
    wide.go(f"#/{served.name}/nodes", "Customers")
    page.locator("#by-q").focus()
    for text in ("c", "1", "5", "9"):
        page.keyboard.press(text)
        page.wait_for_timeout(230)
    page.wait_for_timeout(1500)
    assert page.locator("#by-q").input_value() == "c159"
    assert parse_qs(wide.hash().partition("?")[2]) == {"q": ["c159"]}
