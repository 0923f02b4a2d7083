"""What every model must do; one that is listed in ``MODELS`` is tested by being there."""

import copy
import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets import planted
from hanme.errors import HanmeError
from hanme.nn import MODELS
from hanme.training import (
    LTS,
    RunConfig,
    Trainer,
    TrainingConfig,
    evaluate,
    train,
    with_metapaths,
)
from hanme.training.metrics import f1
from hanme.runs.pipeline import build_model

EASY = {"movies": 400, "guests": 0, "noise": 0, "genres": 3}
TINY = {"movies": 60, "genres": 3}
SMALL = {"hidden_channels": 32, "heads": 2, "dropout": 0.1}

every_model = pytest.mark.parametrize("name", MODELS)


def options(name: str, **changes: object) -> dict:
    """Small sizes, as far as the model has them."""
    known = inspect.signature(MODELS[name]).parameters
    small = {key: value for key, value in SMALL.items() if key in known}
    return with_metapaths(name, "planted", small | changes)


def run_config(name: str, **changes: object) -> RunConfig:
    return RunConfig.make(
        {
            "data": {"name": "planted", "options": TINY},
            "model": {"name": name, "options": options(name, **changes)},
            "training": {"epochs": 3, "lr": 0.01},
        }
    )


def trainer(name: str, data: HeteroData, **config: object) -> Trainer:
    model = build_model(run_config(name).model, data)
    return Trainer(model, data, TrainingConfig(**{"lr": 0.01, **config}))


def weights(run: Trainer) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in run.model.state_dict().items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("lts", [None, LTS(start=0.5, until=15)], ids=["all", "lts"])
@every_model
def test_learns_planted_data(name: str, lts: LTS | None) -> None:
    data = planted(seed=3, **EASY)
    run = trainer(name, data, epochs=60, seed=3, lts=lts)
    epochs = []
    run.run(epochs.append)
    y = run.y[run.masks["val"]].bool()
    guess = f1(torch.ones_like(y), y).macro  # the best there is without looking
    assert run.progress.best_score > guess + 0.1
    assert epochs[-1].loss < epochs[0].loss
    assert all((epoch.share < 1) == (lts is not None) for epoch in epochs[:14])


@every_model
def test_gives_a_logit_per_target_node_and_label(name: str) -> None:
    data = planted(**TINY)
    run = trainer(name, data)
    assert run.logits().shape == (60, 3)
    assert run.model.train()(data).shape == (60, 3)


@every_model
def test_is_reproducible(name: str) -> None:
    data = planted(**TINY)
    first, second, other = (trainer(name, data, seed=seed) for seed in (1, 1, 2))
    for run in (first, second, other):
        for _ in range(3):
            run.step()
    assert equal(weights(first), weights(second))
    assert not equal(weights(first), weights(other))


@every_model
def test_reset_draws_every_weight_anew(name: str) -> None:
    run = trainer(name, planted(**TINY), seed=1)
    before = weights(run)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.fill_(7.0)
    torch.manual_seed(1)
    run.model.reset_parameters()
    assert equal(weights(run), before)


@every_model
def test_saves_and_loads(name: str, tmp_path: Path) -> None:
    run = train(run_config(name), tmp_path / "run")
    assert evaluate(tmp_path / "run") == run.result()["scores"]


@every_model
def test_gives_the_same_output_after_loading(name: str) -> None:
    data = planted(**TINY)
    first, second = trainer(name, data), trainer(name, data, seed=5)
    first.step()
    assert not torch.equal(first.logits(), second.logits())
    second.model.load_state_dict(weights(first))
    assert torch.equal(first.logits(), second.logits())


def with_another(data: HeteroData, kind: str) -> HeteroData:
    """The same links, the very same tensors, and a node more that has none."""
    more = copy.copy(data)
    dense = data[kind].x.to_dense()
    more[kind].x = torch.cat([dense, dense.new_zeros(1, dense.size(1))])
    more[kind].num_nodes = len(dense) + 1
    return more


@every_model
def test_what_was_made_of_a_graph_serves_no_other(name: str) -> None:
    data = planted(**TINY)
    first, second = (with_another(data, kind) for kind in ("keyword", "actor"))
    model = trainer(name, first).model.eval()
    with torch.no_grad():
        model(first)
        fresh = copy.deepcopy(model)
        torch.testing.assert_close(model(second), fresh(second))


@pytest.mark.parametrize("hidden", ["val", "test"])
@every_model
def test_no_label_outside_the_training_nodes_changes_a_step(name: str, hidden: str) -> None:
    data = planted(**TINY)
    changed = data.clone()
    mask = data["movie"][f"{hidden}_mask"]
    changed["movie"].y = torch.where(mask[:, None], 1 - data["movie"].y, data["movie"].y)
    runs = [trainer(name, graph) for graph in (data, changed)]
    for run in runs:
        for _ in range(3):
            run.step()
    assert equal(*map(weights, runs))
    assert torch.equal(*(run.logits() for run in runs))


@pytest.mark.parametrize("hidden", ["val", "test"])
@every_model
def test_nor_does_one_of_a_node_with_a_single_label(name: str, hidden: str) -> None:
    data = planted(**TINY)
    data["movie"].y = data["movie"].y.argmax(1)
    changed = data.clone()
    mask = data["movie"][f"{hidden}_mask"]
    changed["movie"].y = torch.where(mask, (data["movie"].y + 1) % 3, data["movie"].y)
    runs = [trainer(name, graph) for graph in (data, changed)]
    for run in runs:
        run.step()
        run.step()
    assert equal(*map(weights, runs))
    assert torch.equal(*(run.logits() for run in runs))


@every_model
def test_learns_from_the_training_labels(name: str) -> None:
    # What the test above would pass without: labels that do count.
    data = planted(**TINY)
    changed = data.clone()
    mask = data["movie"].train_mask
    changed["movie"].y = torch.where(mask[:, None], 1 - data["movie"].y, data["movie"].y)
    runs = [trainer(name, graph) for graph in (data, changed)]
    for run in runs:
        run.step()
    assert not equal(*map(weights, runs))


BAD_SIZES = [
    ("hidden_channels", 0),
    ("hidden_channels", -8),
    ("hidden_channels", 33),
    ("hidden_channels", 2**20),
    ("hidden_channels", "x"),
    ("heads", 0),
    ("heads", 5),
    ("dropout", 1.5),
    ("dropout", -0.1),
    ("layers", 0),
    ("hops", -1),
    ("hops", 1000),
    ("in_channels", 7),
    ("no_such_option", 1),
]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        (name, option, value)
        for name, model in MODELS.items()
        for option, value in BAD_SIZES
        if option in (*inspect.signature(model).parameters, "no_such_option")
    ],
)
def test_says_no_to_bad_sizes(name: str, option: str, value: object) -> None:
    def build() -> None:
        build_model(run_config(name, **{option: value}).model, planted(**TINY))

    with pytest.raises(HanmeError, match=f"{option}|multiple of heads") as raised:
        build()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["gat", "magna"])
def test_a_graph_without_relations(name: str) -> None:
    data = HeteroData()
    data["film"].x = torch.randn(4, 3)
    assert MODELS[name](data.metadata(), "film", 2)(data).shape == (4, 2)


@pytest.mark.parametrize("name", ["gat", "magna"])  # SeHGNN turns them into what it needs
def test_features_of_another_type_are_named(name: str) -> None:
    data = planted(movies=20)
    for kind in data.node_types:
        data[kind].x = data[kind].x.to_dense().double()
    with pytest.raises(HanmeError, match=r"weights' type, torch\.float32, but got torch\.float64"):
        MODELS[name](data.metadata(), "movie", 5)(data)
