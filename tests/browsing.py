"""A person at the page, in a real browser."""

import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from PIL import Image
from playwright import sync_api as playwright

AXE = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
WIDE, PHONE = (1400, 1000), (390, 844)
PICTURES = os.environ.get("HANME_SCREENSHOTS")
PATIENCE = 90_000  # milliseconds, for machines that are busy with other tests
TOKEN = "a-token-of-the-tests"
JARGON = r"\b(?:block|channel|logit|metapath|wide)s?\b"


def chromium() -> str | None:
    """Return a Chromium that is installed: by Debian, or by Playwright."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    with playwright.sync_playwright() as driver:
        path = driver.chromium.executable_path
    return path if Path(path).exists() else None


class Visitor:
    """A person at the page; what goes wrong in the browser is noted."""

    def __init__(self, context, address: str, token: str) -> None:
        context.request.get(f"{address}?token={token}", max_redirects=0)  # keeps the cookie
        self.page = context.new_page()
        self.address = address
        self.wrong: list[str] = []
        self.expected: list[str] = []
        page = self.page
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda m: m.type in ("error", "warning") and self.wrong.append(m.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))
        page.on("request", self._asked)

    def _asked(self, request) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.wrong.append(f"asked {request.url}")

    def go(self, hash_: str, heading: str | None = None) -> None:
        self.page.goto(self.address + hash_)
        self.seen(heading)

    def seen(self, heading: str | None = None) -> None:
        """Wait until a view is there."""
        self.page.wait_for_selector("main h1")
        if heading is not None:
            playwright.expect(self.page.locator("h1").first).to_have_text(heading)

    def text(self, selector: str = "main") -> str:
        return self.page.locator(selector).first.inner_text()

    def hash(self) -> str:
        return self.page.evaluate("location.hash")

    def accessible(self) -> None:
        """No violation by axe, and nothing wider than the screen."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        told = [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]]
        assert told == []
        wide = "[...document.querySelectorAll('main *')].filter((e) => "
        wide += "e.getBoundingClientRect().right > innerWidth + 1)"
        wide += ".map((e) => e.outerHTML.slice(0, 200))"
        fits = self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert fits, self.page.evaluate(wide)

    def plain(self) -> None:
        """What is seen has no word of the model's internals, which collapsed details may have."""
        assert re.findall(JARGON, self.text("main"), re.IGNORECASE) == []

    def tab_to(self, selector: str) -> None:
        """Press Tab until an element has the focus."""
        for _ in range(120):
            if self.page.evaluate("s => document.activeElement.matches(s)", selector):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {selector}")

    def picture(self, name: str) -> None:
        """Make a picture for the documentation, if that is asked for."""
        if PICTURES:
            self.page.wait_for_timeout(500)
            picture = Image.open(io.BytesIO(self.page.screenshot()))
            picture.quantize(96).save(Path(PICTURES) / f"{name}.png", optimize=True)


@contextmanager
def visiting(
    browser, address: str, size: tuple[int, int], scheme: str, token: str = TOKEN
) -> Iterator[Visitor]:
    viewport = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    person = Visitor(context, address, token)
    yield person
    context.close()
    left = [line for line in person.wrong if not any(e in line for e in person.expected)]
    assert left == []
