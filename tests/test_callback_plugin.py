"""A package from outside the repository adds a callback; only training needs the package."""

import json
from pathlib import Path

import pytest

from outside import hanme, install
from serving import serving

pytestmark = pytest.mark.slow

CODE = '''
from pathlib import Path

import torch

from hanme.training import Callback


class Polite(Callback):
    """Clip gradients, halve the learning rate each epoch, stop at a given epoch and log."""

    def __init__(self, *, norm: float = 1.0, last: int = 3) -> None:
        self.norm, self.last = norm, last

    def on_epoch_start(self, state) -> None:
        state.optimizer.param_groups[0]["lr"] = state.config.lr * 0.5**state.epoch

    def on_backward_end(self, state) -> None:
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), self.norm)

    def on_epoch_end(self, state) -> None:
        with (Path(state.folder) / "polite.txt").open("a") as file:
            file.write(f"{state.epoch} {state.optimizer.param_groups[0]['lr']}\\n")
        if state.epoch == self.last:
            state.stop()
'''

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "polite"
version = "0.1"

[project.entry-points."hanme.callbacks"]
polite = "polite:Polite"

[tool.hatch.build.targets.wheel]
include = ["polite.py"]
"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder of its own."""
    assert len(CODE.splitlines()) < 60
    return install(tmp_path_factory.mktemp("package"), "polite", CODE, PROJECT)


TRAIN = ["train", "planted", "--recipe", "paper", "--epochs", "9", "--lr", "0.01"]
TRAIN += ["--hidden", "16", "--heads", "2", "--set", "data.options.movies=150"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Path:
    """Train with the callback by its name, and with options."""
    folder = tmp_path_factory.mktemp("work")
    options = '{"name": "polite", "norm": 0.1, "last": 2}'
    for name, chosen in {
        "named": ["--callback", "polite"],
        "table": ["--set", f"training.callbacks=[{options}]"],
    }.items():
        done = hanme(*TRAIN, *chosen, "--out", name, folder=folder, plugins=plugins)
        assert done.returncode == 0, done.stderr
    return folder


def test_the_callback_stops_schedules_and_logs(folder: Path) -> None:
    for run, last in {"named": 3, "table": 2}.items():
        assert json.loads((folder / run / "result.json").read_text())["epochs"] == last
        lines = (folder / run / "polite.txt").read_text().splitlines()
        assert lines == [f"{epoch} {0.01 * 0.5**epoch}" for epoch in range(1, last + 1)]
    config = json.loads((folder / "table" / "config.json").read_text())
    assert config["training"]["callbacks"] == [{"name": "polite", "norm": 0.1, "last": 2}]


def test_a_trained_run_works_without_the_package(folder: Path) -> None:
    scores = json.loads((folder / "named" / "result.json").read_text())["scores"]
    done = hanme("evaluate", "named", "--json", folder=folder, plugins=None)
    assert done.returncode == 0, done.stderr
    assert f"{scores['with_fallback']['test']['micro']}" in done.stdout
    done = hanme("explain", "named", "3", "--json", folder=folder, plugins=None)
    assert done.returncode == 0, done.stderr
    predicted = json.loads(done.stdout)["predicted"]
    with serving(folder / "named") as server:
        assert server.get("runs/named/predictions/3")["predicted"] == predicted
        assert server.get("runs/named/explanations/3")


def test_training_without_the_package_is_refused_in_a_line(folder: Path) -> None:
    chosen = ["--callback", "polite", "--out", "other"]
    done = hanme(*TRAIN, *chosen, folder=folder, plugins=None)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "Expected `callback` to be one of mlflow, tensorboard" in line
    assert "install its package" in line
    assert not (folder / "other" / "config.json").exists()
