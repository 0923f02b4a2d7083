"""Stacking: held-out and final logits are one composition, and no slope is undeserved."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hanme.data import planted
from hanme.decision import calibrate
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.linear import LinearModel
from hanme.nn import HANME, Channels, Task
from hanme.nn.batch import Batch
from hanme.runs import OpenedRun, RunConfig
from hanme.runs.train import prepare, train_in_memory
from hanme.training import (
    Network,
    Stacked,
    Trainer,
    TrainingConfig,
    ValidationNodes,
    build_seeded,
    finalize,
    load_learner,
    stacking_gain,
    trainer,
)
from hanme.training.metrics import scores


@pytest.fixture(scope="module")
def graph() -> Graph:
    return planted(movies=300, genres=3, seed=1).with_features("given")


class OwnFeatures(Channels):
    """Vectors from the root's own features."""

    names = ("own features",)

    def __init__(self, task: Task, out_channels: int) -> None:
        super().__init__(task, out_channels)
        self.lin = nn.Linear(task.width(task.target), out_channels)

    def forward(self, batch: Batch) -> list[Tensor]:
        x = self.lin(batch.x_dict["movie"].to_dense())
        return [x if batch.roots is None else x[batch.roots]]


def test_held_out_and_final_logits_are_the_same_composition(graph: Graph) -> None:
    """Slopes apply to any head and any user-defined channels."""
    sizes = {"in_channels": graph.widths, "hidden_channels": 8, "heads": 2}

    def build() -> HANME:
        made = HANME(graph.metadata(), "movie", graph.metapaths, 3, channels=[OwnFeatures], **sizes)
        made.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        return made

    network, _ = build_seeded(build, graph, 1)
    config = TrainingConfig(recipe="default", refit=False, epochs=4, seed=1)
    Trainer(network, graph, config).run()
    trained = finalize(network, graph, config)
    assert 0 < trained.slopes["network"] != 1
    torch.testing.assert_close(trained.outputs.held_out, trained.outputs.logits)
    torch.testing.assert_close(trained.model.predict(graph), trained.outputs.logits)


def test_a_network_that_overfits_its_selection_nodes_gets_no_undeserved_slope(
    graph: Graph,
) -> None:
    """A network that knows the labels of the nodes that selected it, and noise elsewhere."""
    config = TrainingConfig(recipe="default", seed=1)
    nodes = ValidationNodes.of(graph, config, network=True, stack=True)
    selection = nodes.selection
    assert not selection[nodes.others].any()
    assert set(nodes.half.tolist()) == {0, 1}
    assert int(selection.sum()) + len(nodes.others) == int(graph.split.val.sum())
    noise = torch.randn(graph.y.shape, generator=torch.Generator().manual_seed(0))
    logits = torch.where(selection[:, None], 6 * graph.y - 3, noise)

    class Overfitted(HANME):
        def forward(self, batch: Batch) -> Tensor:
            super().forward(batch)
            return logits

    sizes = {"in_channels": graph.widths, "hidden_channels": 8, "heads": 2}
    network = Overfitted(graph.metadata(), "movie", graph.metapaths, 3, **sizes)
    slope = finalize(network, graph, config).slopes["network"]
    base = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    val = graph.split.val
    leaked, _ = calibrate([base[val], logits[val]], graph.y[val])
    assert slope < 0.15 < leaked[1]


def test_the_epoch_is_selected_without_the_stacking_nodes(graph: Graph) -> None:
    config = RunConfig.make(
        {
            "data": {"name": "planted"},
            "model": {"name": "hanme", "options": {"metapaths": graph.metapaths, "heads": 2}},
            "training": {"recipe": "default", "seed": 1, "epochs": 8, "linear": True},
        }
    )
    nodes = ValidationNodes.of(graph, config.training, network=True, stack=True)
    made = prepare(config, graph)
    assert torch.equal(made.graph.split.val, nodes.selection)
    assert not made.graph.split.labelled[nodes.others].any()


@pytest.mark.slow
def test_a_stack_loses_nothing_that_its_parts_have_alone(graph: Graph) -> None:
    config = RunConfig.make(
        {
            "data": {"name": "planted"},
            "model": {"name": "hanme", "options": {"metapaths": graph.metapaths, "heads": 4}},
            "training": {"recipe": "default", "seed": 1},
        }
    )
    trained = train_in_memory(config, graph).trained
    test = {"test": graph.split.test}
    both, linear = (
        scores(each.logits, graph.y, test, each.decision)["test"].macro
        for each in (trained.outputs, trained.linear)
    )
    assert both > linear - 0.03
    assert both > 0.7
    assert set(trained.slopes) == {"linear", "network"}
    values, tensors = trained.model.state()
    again = load_learner(values, tensors, graph, Network(trained.model.network))
    after = replace(graph, visible=graph.split.labelled)
    torch.testing.assert_close(again.predict(after), trained.outputs.logits)
    for broken in (values | {"slopes": {}}, values | {"kind": "?"}, {"kind": "linear"}):
        with pytest.raises(HanmeError):
            load_learner(broken, tensors, graph, None)


@pytest.mark.parametrize("multilabel", [False, True])
def test_test_labels_change_nothing(graph: Graph, multilabel: bool) -> None:
    if not multilabel:
        graph = replace(graph, y=graph.y.argmax(1))
    other = graph.y.clone()
    other[graph.split.test] = torch.tensor([1.0, 0, 0]) if multilabel else 0
    config = TrainingConfig(recipe="default", seed=1)
    found, again = (finalize(None, replace(graph, y=y), config) for y in (graph.y, other))
    assert torch.equal(found.outputs.held_out, again.outputs.held_out)
    assert torch.equal(found.outputs.logits, again.outputs.logits)
    assert found.outputs.decision == again.outputs.decision


def test_a_label_that_no_training_node_has_is_no_mistake(graph: Graph) -> None:
    graph = replace(graph, y=graph.y.argmax(1))
    last = (graph.y == 2) & graph.split.labelled
    split = graph.split._replace(train=graph.split.train & ~last, val=graph.split.val & ~last)
    found = finalize(None, replace(graph, split=split), TrainingConfig(recipe="default"))
    assert found.outputs.logits.isfinite().all()


@pytest.mark.parametrize("labelled", [4, 7])
def test_a_handful_of_labels_is_enough(graph: Graph, labelled: int) -> None:
    nodes = graph.split.labelled.nonzero().flatten()[:labelled]
    train, val = torch.zeros_like(graph.split.train), torch.zeros_like(graph.split.val)
    train[nodes[:-1]], val[nodes[-1:]] = True, True
    few = replace(graph, split=graph.split._replace(train=train, val=val))
    assert finalize(None, few, TrainingConfig(recipe="default")).outputs.logits.isfinite().all()


def test_many_labels_are_fitted_without_folds(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig(recipe="default", seed=1)
    few = finalize(None, graph, config).outputs
    for module in ("base_learners", "../linear/fit"):
        where = "hanme.training.base_learners" if module == "base_learners" else "hanme.linear.fit"
        monkeypatch.setattr(f"{where}.MAX_GRAM_NODES", 50)
    many = finalize(None, graph, config).outputs
    test = {"test": graph.split.test}
    a, b = (scores(each.logits, graph.y, test, each.decision)["test"].macro for each in (few, many))
    assert abs(a - b) < 0.1


def test_threads_are_left_alone(graph: Graph) -> None:
    before, seen = torch.get_num_threads(), []
    setter = torch.set_num_threads
    torch.set_num_threads = lambda n: seen.append(n) or setter(n)  # type: ignore[assignment]
    try:
        finalize(None, graph, TrainingConfig(recipe="default", seed=1))
    finally:
        torch.set_num_threads = setter  # type: ignore[assignment]
    assert not seen
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_a_network_that_adds_nothing_is_given_up_and_dropped(graph: Graph, tmp_path: Path) -> None:
    config = RunConfig.make(
        {
            "data": {"name": "python"},
            "model": {"options": {"metapaths": graph.metapaths, "heads": 2, "hidden_channels": 8}},
            "training": {"recipe": "default", "seed": 1, "lr": 1e-9, "patience": 50},
        }
    )
    run = train_in_memory(config, graph)
    assert run.result["epochs"] == trainer.PROBE
    assert run.model.network is None
    assert "dropped after 24 epochs" in run.result["notes"][0]
    run.save(tmp_path / "run")
    again = OpenedRun.open(tmp_path / "run", graph=graph)
    assert torch.equal(again.logits(), run.logits())
    assert again.explain(3).predicted
    base = torch.zeros(400, 2)
    y = torch.arange(400) % 2
    noise = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    useful = 2.0 * y[:, None] * torch.tensor([-1, 1])
    assert stacking_gain(base, noise, y) < trainer.GAIN < stacking_gain(base, useful, y)


def test_the_parameters_are_those_that_training_changes(graph: Graph) -> None:
    """Means of the fusion and inverse document frequencies are statistics of the graph."""
    options = {"metapaths": graph.metapaths, "hidden_channels": 8, "heads": 2}
    values = {
        "data": {"name": "python"},
        "model": {"options": options},
        "training": {"epochs": 2, "trees": False, "smoothing": False},
    }
    for recipe in ("paper", "default"):
        training = {**values["training"], "recipe": recipe}
        opened = train_in_memory(RunConfig.make(values | {"training": training}), graph)
        counted = 0
        if (network := opened.model.network) is not None:
            counted = sum(p.numel() for p in network.parameters() if p.requires_grad)
        for learner in opened.model.learners.values():
            assert isinstance(learner, Stacked)
            for part in learner.parts.values():
                assert isinstance(part, LinearModel)
                counted += part.bias.numel() + sum(w.numel() for _, w, _ in part.blocks)
        assert opened.result["parameters"] == counted
