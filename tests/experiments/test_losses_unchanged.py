"""The first ten epochs of every packaged paper configuration have the losses recorded in 0.2.

``losses.json`` was written by that version: ``python tests/experiments/test_losses_unchanged.py``.
There, IMDB's links were sorted for ``magna-IMDB``, as the cache sorts them now: MAGNA draws dropout
link by link.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hanme.experiments.configuration import CONFIGS, read_config
from hanme.runs.build import build_network, load_graph
from hanme.runs.config import RunConfig
from hanme.training import Trainer, build_seeded

EPOCHS = 10
RECORDED = Path(__file__).with_name("losses.json")
BATCHED = ("hanme-multihop", "hanme-direct", "han", "magnn", "gat")
"""Configurations that are trained on planted graphs in batches, too."""


def cases() -> dict[str, dict[str, Any]]:
    """Configurations of networks by the paper's recipe, with the changes to each."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(CONFIGS.glob("*-*.toml")):
        if path.stem.endswith("-paper"):  # the same network on another split
            continue
        values = read_config(path)
        if values["training"].get("recipe") != "default" and values["model"]["name"] != "linear":
            found[path.stem] = {}
    return found | {f"{name}-planted-batches": {"batch_size": 32} for name in BATCHED}


def losses(name: str) -> list[float]:
    values = read_config(CONFIGS / f"{name.removesuffix('-batches')}.toml")
    training = values["training"] | {"seed": 483, "epochs": EPOCHS, "every": 1} | cases()[name]
    config = RunConfig.make(values | {"training": training})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of sums depends on it
    try:
        graph = load_graph(config)
        model, random = build_seeded(
            lambda: build_network(config.model, graph), graph, config.training.seed
        )
        trainer = Trainer(model, graph, config.training, random=random)
        return [trainer.step().loss for _ in range(EPOCHS)]
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "name",
    [name if "planted" in name else pytest.param(name, marks=pytest.mark.slow) for name in cases()],
)
def test_the_first_losses_are_those_recorded(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())[name]
    # CPUs with other vector units round differently: after ten steps by up to 7e-6.
    assert losses(name) == pytest.approx(recorded, abs=1e-6, rel=2e-5)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({name: losses(name) for name in cases()}, indent=1) + "\n")
