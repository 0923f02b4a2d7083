"""Trained runs and a server process for all tests of the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from serving import Server, serving, train_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs: planted, paper, closed (no explanations), hostile, numbers."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = base / "served"
    with FileLock(base / "served.lock"):  # the first worker trains for all
        if not (folder / "numbers" / "result.json").exists():
            folder.mkdir()
            train_runs(folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; tests that need it are skipped where it is not installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    from browsing import PATIENCE, chromium

    path = chromium()
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def server(runs: Path) -> Iterator[Server]:
    """A server of all runs."""
    folders = (runs / name for name in ("planted", "paper", "closed", "hostile", "numbers"))
    with serving(*folders) as started:
        yield started
