"""What every test shares: one thread, and the real graphs where they are."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hanme.cli import main

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def hgb_source() -> Path:
    """The folder with the real HGB archives; the test is skipped where there is none."""
    folder = os.environ.get("HANME_DATA", "")
    if not folder or not (Path(folder) / "hgb" / "IMDB.zip").exists():
        pytest.skip("HANME_DATA names no folder with hgb/IMDB.zip: the real graphs are not here")
    return Path(folder).resolve()


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command that must end with status 2 and one line, and gives the line.

    In this process: starting one for each mistake would take minutes.
    """

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["hanme", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr().err
        assert left.value.code == 2
        assert len(said.strip().splitlines()) == 1
        return said

    return run
