"""A package from outside the repository adds components, which all commands use by name."""

import json
import os
from pathlib import Path

import pytest

from hanme.data import METAPATHS
from outside import hanme, install
from serving import serving

pytestmark = pytest.mark.slow

CODE = '''
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from hanme.decision import DecisionRule
from hanme.decision.rules import most_likely
from hanme.linear import NamedColumns
from hanme.nn import Encoder, Fusion
from hanme.nn.encoders import PathEncoder, Terms
from hanme.ops import Constant
from hanme.training import Callback


class Ends(Encoder):
    """Weigh the last node of an instance by a fixed number."""

    def __init__(self, heads: int, channels: int, metapaths=(), *, width: int = 1) -> None:
        super().__init__(heads, channels, metapaths)
        self.width = width

    def forward(self, h, chains):
        return [self._terms(h, chain.metapath.node_types) for chain in chains]

    def _terms(self, h, types):
        c = (0.0,) * (len(types) - 1) + (1.0 / self.width,)
        return Terms(tuple(h[t] for t in types), Constant(c))


class Learnt(Fusion):
    """Add up the vectors with learnt weights."""

    def __init__(self, vectors: int, channels: int, *, temperature: float = 1.0) -> None:
        super().__init__(vectors, channels)
        self.score, self.temperature = nn.Parameter(torch.zeros(vectors)), temperature

    def weights(self, vectors):
        return torch.softmax(self.score / self.temperature, 0)

    def forward(self, vectors):
        return torch.einsum("m,mrc->rc", self.weights(vectors), torch.stack(list(vectors)))


class Recurrent(PathEncoder):
    """The last state of a GRU from the end of an instance to its root."""

    def __init__(self, heads: int, channels: int, metapaths=()) -> None:
        super().__init__(heads, channels, metapaths)
        self.gru = nn.GRU(channels, channels, batch_first=True)

    def encode(self, values, links, metapath):
        states = values.flip(1).transpose(1, 2).flatten(0, 1)
        return self.gru(states)[1][0].view(len(values), self.heads, self.channels)


class One(DecisionRule):
    """Give every node its most likely label alone."""

    def labels(self, logits, fitted, *, multilabel):
        return most_likely(logits)


@dataclass(frozen=True)
class Crew(NamedColumns):
    """Whether a movie is linked to each of the first nodes of a type."""

    node_type: str = "director"
    most: int = 50

    kind: ClassVar[str] = "crew"

    @property
    def walks(self):
        return [(("movie", "to", self.node_type),)]

    def columns(self, graph):
        nodes, (step,) = graph.nodes[self.node_type], self.walks[0]
        found = torch.zeros(graph.targets.num_nodes, self.most)
        source, end = graph.links[step]
        number = end if nodes.original_ids is None else nodes.original_ids[end]
        kept = number < self.most
        found[source[kept], number[kept]] = 1.0
        return found.numpy(), [f"works with {self.node_type} {i}" for i in range(self.most)]


class Polite(Callback):
    """Clip gradients, and stop at an epoch."""

    def __init__(self, last: int = 30) -> None:
        self.last = last

    def on_backward_end(self, state):
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)

    def on_epoch_end(self, state):
        if state.epoch == self.last:
            state.stop()
'''

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "outside"
version = "0.7"

[project.entry-points."hanme.encoders"]
ends = "components:Ends"
recurrent = "components:Recurrent"

[project.entry-points."hanme.fusions"]
learnt = "components:Learnt"

[project.entry-points."hanme.decision_rules"]
one = "components:One"

[project.entry-points."hanme.feature_blocks"]
crew = "components:Crew"

[project.entry-points."hanme.callbacks"]
polite = "components:Polite"

[tool.hatch.build.targets.wheel]
include = ["components.py"]
"""

CONFIG = """
[data]
name = "planted"
options = {movies = 150}

[model]
name = "hanme"
options = {metapaths = METAPATHS, encoder = "ends", width = 3, fusion = {name = "learnt", temperature = 2.0}, heads = 2, hidden_channels = 16}

[training]
recipe = "paper"
epochs = 3
decide = "one"
"""  # noqa: E501  an inline table is one line


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder of its own."""
    return install(tmp_path_factory.mktemp("package"), "components", CODE, PROJECT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Path:
    """Train with options on the command line, and with those of a file."""
    folder = tmp_path_factory.mktemp("work")
    text = CONFIG.replace("METAPATHS", json.dumps(METAPATHS["planted"]))
    (folder / "mine.toml").write_text(text)
    options = ["--encoder", "ends", "--set", "width=3", "--hidden", "16", "--heads", "2"]
    options += ["--set", 'fusion={"name": "learnt", "temperature": 2.0}', "--decide", "one"]
    options += ["--recipe", "paper", "--epochs", "3", "--set", "data.options.movies=150"]
    for name, chosen in {"cli": ["planted", *options], "toml": ["--config", "mine.toml"]}.items():
        done = hanme("train", *chosen, "--out", name, folder=folder, plugins=plugins)
        assert done.returncode == 0, done.stderr
    return folder


def test_a_run_records_names_and_options(folder: Path) -> None:
    for run in ("cli", "toml"):
        config = json.loads((folder / run / "config.json").read_text())
        options = config["model"]["options"]
        assert (options["encoder"], options["width"]) == ("ends", 3)
        assert options["fusion"] == {"name": "learnt", "temperature": 2.0}
        assert json.loads((folder / run / "decision.json").read_text())["rule"] == "one"
    first, second = (
        json.loads((folder / run / "result.json").read_text()) for run in ("cli", "toml")
    )
    assert first["scores"] == second["scores"]


def test_other_commands_use_the_components(folder: Path, plugins: Path) -> None:
    scores = json.loads((folder / "cli" / "result.json").read_text())["scores"]
    done = hanme("evaluate", "cli", "--json", folder=folder, plugins=plugins)
    assert done.returncode == 0, done.stderr
    assert f"{scores['decided']['test']['micro']}" in done.stdout
    done = hanme("predict", "cli", "--out", "p.csv", folder=folder, plugins=plugins)
    assert done.returncode == 0, done.stderr
    done = hanme("explain", "cli", "3", "--json", folder=folder, plugins=plugins)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["predicted"]) == 1  # of several genres, by the rule "one"
    done = hanme("explain", "cli", "3", "--out", "3.svg", folder=folder, plugins=plugins)
    assert done.returncode == 0, done.stderr


def test_the_server_uses_the_components(folder: Path, plugins: Path) -> None:
    done = hanme("explain", "cli", "3", "--json", folder=folder, plugins=plugins)
    with serving(folder / "cli", environment={"PYTHONPATH": environment(plugins)}) as server:
        answer = server.get("runs/cli/predictions/3")
        assert server.get("runs/cli/explanations/3")
    assert answer["predicted"] == json.loads(done.stdout)["predicted"]


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Path:
    """Train the default recipe with five components of the package."""
    folder = tmp_path_factory.mktemp("stacked")
    options = ["--encoder", "recurrent", "--hidden", "16", "--heads", "2", "--epochs", "8"]
    options += ["--set", 'fusion={"name": "learnt"}', "--decide", "one"]
    options += ["--set", 'training.blocks=[{"name": "crew", "most": 40}]', "--callback", "polite"]
    options += ["--set", "data.options.movies=150", "--set", "data.options.genres=3"]
    done = hanme("train", "planted", *options, "--out", "run", folder=folder, plugins=plugins)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_block_is_weighed_stored_and_explained(stacked: Path, plugins: Path) -> None:
    assert "crew{" in (stacked / "run" / "stack.json").read_text()
    done = hanme("evaluate", "run", "--json", folder=stacked, plugins=plugins)
    assert done.returncode == 0, done.stderr
    scores = json.loads((stacked / "run" / "result.json").read_text())["scores"]
    assert f"{scores['decided']['test']['micro']}" in done.stdout
    done = hanme("explain", "run", "3", "--json", folder=stacked, plugins=plugins)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    texts = [reason["text"] for reason in found["reasons"]]
    assert any(text.startswith("works with director") for text in texts)
    for label, logit in found["logits"].items():
        total = found["base"][label] + sum(r["contributions"][label] for r in found["reasons"])
        assert total == pytest.approx(logit, abs=1e-5)
    with serving(stacked / "run", environment={"PYTHONPATH": environment(plugins)}) as server:
        answer = server.get("runs/run/explanations/3")
    assert [reason["text"] for reason in answer["reasons"]] == texts


def environment(plugins: Path) -> str:
    return os.pathsep.join(filter(None, [str(plugins), os.environ.get("PYTHONPATH", "")]))


def test_without_the_package_a_run_is_refused_in_a_line(folder: Path) -> None:
    for command in (["evaluate", "cli"], ["explain", "cli", "3"]):
        done = hanme(*command, folder=folder, plugins=None)
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert "install its package" in line
