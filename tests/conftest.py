"""What every test shares: one thread, and the real graphs where they are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from commands import hanme

torch.set_num_threads(1)
# Some virtual machines announce AMX and stop at its first instruction, in any product of bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(scope="session")
def hgb_source() -> Path:
    """The folder with the real HGB archives; the test is skipped where there is none."""
    folder = os.environ.get("HANME_DATA", "")
    if not folder or not (Path(folder) / "hgb" / "IMDB.zip").exists():
        pytest.skip("HANME_DATA names no folder with hgb/IMDB.zip: the real graphs are not here")
    return Path(folder).resolve()


@pytest.fixture
def refused() -> Callable[..., str]:
    """Runs a command that must end with status 2 and one line, and gives the line."""

    def run(*arguments: object, **environment: str) -> str:
        done = hanme(*arguments, **environment)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        return done.stderr

    return run
