"""The page in a real browser, as far as it is checked every time; test_page.py checks the rest."""

from __future__ import annotations

import shutil

import pytest

from serving import Server

playwright = pytest.importorskip("playwright.sync_api")


def test_from_the_printed_address_to_a_node(server: Server) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(server.url)
        assert "token is missing" in page.content()
        page.goto(f"{server.url}?token={server.token}")
        page.get_by_role("heading", name="How good is it?").wait_for()
        assert "token" not in page.url
        row = server.get("runs/planted/predictions/7")
        page.locator("#find").fill(row["name"])
        page.locator("#found a").first.wait_for()
        assert "false" not in page.locator("#found").inner_text()
        page.locator("#found a").first.click()
        page.get_by_role("heading", name=row["name"]).wait_for()
        found = server.get("runs/planted/explanations/7")
        assert page.locator(".sentence").inner_text() == found["sentence"]
        assert (
            page.locator(".waterfall li")
            .nth(1)
            .inner_text()
            .startswith(found["reasons"][0]["text"])
        )
        browser.close()
    assert wrong == []
