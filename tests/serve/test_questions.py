"""Five questions of a user, each answered on the first page it leads to, by keyboard alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import hanme
from serving import Server, serving

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("axe_playwright_python")

from browsing import PHONE, WIDE, Visitor, visiting  # noqa: E402

ROOT = Path(__file__).parents[2]
TARGETS = {"planted": "movie", "numbers": "customer", "films": "film"}
SCREENS = [(WIDE, "light"), (PHONE, "dark"), (WIDE, "dark"), (PHONE, "light")]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The films of the example."""
    folder = tmp_path_factory.mktemp("films")
    shutil.copytree(ROOT / "examples" / "films", folder / "tables")
    for arguments in (("init", "tables"), ("train", "tables", "--out", "films", "--epochs", 8)):
        done = hanme(*arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
    with serving(folder / "films") as started:
        yield started


def ask_all(browser: Any, server: Server, run: str, size: tuple[int, int], scheme: str) -> None:
    with visiting(browser, server.url, size, scheme, server.token) as person:
        why(person, server, run)
        what_would_change_it(person, server, run)
        what_to_review_first(person, server, run)
        is_it_good_enough(person, server, run)
        what_about_a_new_row(person, server, run)


def checked(person: Visitor) -> None:
    person.accessible()
    person.plain()


def why(person: Visitor, server: Server, run: str) -> None:
    """Why has this node this label?"""
    row = server.get(f"runs/{run}/predictions/10")
    person.go(f"#/{run}/overview", run)
    person.tab_to("#find")
    person.page.keyboard.type(row["id"] if run != "planted" else row["name"])
    playwright.expect(person.page.locator("#found a").first).to_contain_text(row["name"])
    person.page.keyboard.press("ArrowDown")
    person.page.keyboard.press("Enter")
    person.seen(row["name"])
    found = server.get(f"runs/{run}/explanations/10")
    assert person.text(".sentence") == found["sentence"]
    assert found["label"] in found["sentence"]
    assert "%" in found["sentence"]
    checked(person)


def what_would_change_it(person: Visitor, server: Server, run: str) -> None:
    """What would change the answer?"""
    person.tab_to("a[href*='what-if']:not(nav a)")
    person.page.keyboard.press("Enter")
    person.page.locator("#apply").wait_for()
    first = server.get(f"runs/{run}/changes/10")["effects"][0]
    assert first["text"] in person.text(".most")
    assert re.search(r"goes from \d+ % to \d+ %", person.text(".most"))
    checked(person)


def what_to_review_first(person: Visitor, server: Server, run: str) -> None:
    """What should I review first?"""
    first, second = server.get(f"runs/{run}/reviews?limit=2")["rows"]
    person.page.evaluate("document.activeElement.blur()")
    person.tab_to("nav a[href$='/review']")
    person.page.keyboard.press("Enter")
    person.seen("Review")
    heading = person.page.locator(".question > h2")
    playwright.expect(heading).to_have_text(first["name"])
    person.page.locator(".question .sentence:not(:empty)").wait_for()
    checked(person)
    person.page.keyboard.press("s")
    playwright.expect(heading).to_have_text(second["name"])
    assert server.get(f"runs/{run}/reviews?limit=1")["answered"]["skip"] >= 1


def is_it_good_enough(person: Visitor, server: Server, run: str) -> None:
    """Is the model good enough?"""
    person.page.evaluate("document.activeElement.blur()")
    person.tab_to("nav a[href$='/overview']")
    person.page.keyboard.press("Enter")
    person.seen(run)
    found, text = server.get(f"runs/{run}/overview"), person.text()
    model = found["scores"][0]
    if "correct" in model:
        assert f"{model['correct']} of {found['nodes']}" in text
    assert "95 % interval" in text
    assert f"{found['new']['nodes']} new: {found['new']['confident']} confident" in text
    for words in ("Log loss", "ROC AUC", "Average precision"):
        assert words in text
    checked(person)


def what_about_a_new_row(person: Visitor, server: Server, run: str) -> None:
    """What about this new row?"""
    target = TARGETS[run]
    (group, *_) = server.get(f"runs/{run}/nodes/{target}/10")["links"]
    other = group["nodes"][0]
    person.tab_to("nav a[href$='/new']")
    person.page.keyboard.press("Enter")
    person.seen(f"New {target}")
    person.tab_to("#add-name")
    person.page.keyboard.type(other["name"])
    first = person.page.locator(".found.still li:first-child button")
    first.filter(has_text=f"Add {other['name']}").wait_for()
    person.tab_to(".found.still button")
    person.page.keyboard.press("Enter")
    person.page.get_by_role("heading", name="What the model says").wait_for()
    row = {"links": {group["relation"]: [other["number"]]}}
    (new,) = server.get(f"runs/{run}/rows", json={"rows": [row]})["rows"]
    assert person.text(".sentence") == new["explanation"]["sentence"]
    checked(person)


def test_five_questions(browser: Any, server: Server) -> None:
    ask_all(browser, server, "numbers", *SCREENS[1])


@pytest.mark.slow
@pytest.mark.parametrize("screen", range(4))
@pytest.mark.parametrize("run", ["numbers", "planted"])
def test_five_questions_on_every_screen(
    browser: Any, server: Server, run: str, screen: int
) -> None:
    ask_all(browser, server, run, *SCREENS[screen])


@pytest.mark.slow
@pytest.mark.parametrize("screen", range(4))
def test_five_questions_about_films(browser: Any, films: Server, screen: int) -> None:
    ask_all(browser, films, "films", *SCREENS[screen])
