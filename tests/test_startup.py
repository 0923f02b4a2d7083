"""Predicting imports no library that only other work needs: each takes as long as PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest

SLOW = ("torch_geometric", "torch._dynamo", "sklearn", "matplotlib", "optuna", "sqlalchemy",
        "scipy.optimize", "pandas", "fastapi")  # fmt: skip

PREDICT = """
import sys
from pathlib import Path
from hanme.cli import main
sys.argv = ["hanme", "predict", sys.argv[1], "--node", "0"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("imported:", *(name for name in {slow} if name in sys.modules))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("startup")
    train = ["train", "planted", "--epochs", "1", "--out", "run"]
    subprocess.run([sys.executable, "-m", "hanme", *train], cwd=folder, check=True)
    return folder / "run"


def imported(code: str, *arguments: str) -> str:
    code = code.replace("{slow}", repr(SLOW))
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_predicting_imports_little(run: Path) -> None:
    assert imported(PREDICT, str(run)) == "imported:"


def test_help_imports_no_torch() -> None:
    code = "import sys, hanme.cli; print('imported:', *(n for n in ('torch',) if n in sys.modules))"
    assert imported(code) == "imported:"
