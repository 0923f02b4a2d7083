"""What every model must do; one that is listed in ``MODELS`` is tested by being there."""

import copy
import inspect
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hanme import Graph
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.nn import MODELS, Model, SemanticAttention
from hanme.nn.batch import Batch
from hanme.runs import OpenedRun, RunConfig, build_network, train, with_metapaths
from hanme.testing import check_seed
from hanme.training import LTS, Trainer, TrainingConfig, build_seeded, f1

EASY = {"movies": 400, "guests": 0, "noise": 0, "genres": 3}
TINY = {"movies": 60, "genres": 3}
SMALL = {"hidden_channels": 32, "heads": 2, "dropout": 0.1}

# linear is fitted, not trained by steps: tests/nn/test_linear.py
every_model = pytest.mark.parametrize("name", [name for name in MODELS if name != "linear"])


def options(name: str, **changes: object) -> dict:
    """Small sizes, as far as the model has them."""
    known = inspect.signature(MODELS[name]).parameters
    small = {key: value for key, value in SMALL.items() if key in known}
    return with_metapaths(name, small | changes, planted(**TINY))[1]


def run_config(name: str, **changes: object) -> RunConfig:
    return RunConfig.make(
        {
            "data": {"name": "planted", "options": TINY},
            "model": {"name": name, "options": options(name, **changes)},
            "training": {"recipe": "paper", "epochs": 3, "lr": 0.01},
        }
    )


def trainer(name: str, graph: Graph, **config: object) -> Trainer:
    settings = TrainingConfig(**{"recipe": "paper", "lr": 0.01, **config})
    model, random = build_seeded(
        lambda: build_network(run_config(name).model, graph), graph, settings.seed
    )
    return Trainer(model, graph, settings, random=random)


def logits(model: Model, graph: Graph, roots: Tensor | None = None) -> Tensor:
    return model(Batch.of(graph, roots))


def weights(run: Trainer) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in run.model.state_dict().items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("lts", [None, LTS(start=0.5, until=15)], ids=["all", "lts"])
@every_model
def test_learns_planted_data(name: str, lts: LTS | None) -> None:
    graph = planted(seed=3, **EASY)
    run = trainer(name, graph, epochs=30, seed=3, lts=lts)
    epochs = []
    run.run(epochs.append)
    y = graph.label_matrix[graph.split.val]
    guess = f1(torch.ones_like(y), y).macro  # the best there is without looking
    assert run.progress.best_score > guess + 0.1
    assert epochs[-1].loss < epochs[0].loss
    assert all((epoch.share < 1) == (lts is not None) for epoch in epochs[:14])


@every_model
def test_gives_a_logit_per_target_node_and_label(name: str) -> None:
    graph = planted(**TINY)
    run = trainer(name, graph)
    assert run.logits().shape == (60, 3)
    assert logits(run.model.train(), graph).shape == (60, 3)


def hold_means(model: nn.Module) -> None:
    """Hold fixed what is a mean over the roots of a batch, as the docstrings of models say."""
    for part in model.modules():
        if isinstance(part, SemanticAttention):
            part._beta = lambda z: torch.linspace(0, 1, len(z))
        elif isinstance(part, nn.BatchNorm1d):
            part.forward = lambda x: x


@pytest.mark.parametrize("which", ["some", "all"])
@every_model
def test_roots_get_the_rows_of_the_whole_graph(name: str, which: str) -> None:
    graph = planted(**TINY)
    run = trainer(name, graph)
    run.step()
    model = run.model.eval()
    roots = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    if which == "some":  # all of them, in any order, have the same means
        roots = torch.cat([roots[:9], roots[2:4]])
        said = " ".join(str(kind.__doc__) for kind in type(model).__mro__).split()
        if "over the roots of a batch" in " ".join(said):
            hold_means(model)
    with torch.no_grad():
        whole = logits(model, graph)[roots]
        torch.testing.assert_close(logits(model, graph, roots), whole)
        assert not torch.allclose(logits(model, graph, roots.flip(0)), whole)


@every_model
def test_a_root_that_is_not_there_is_named(name: str) -> None:
    graph = planted(**TINY)
    model = trainer(name, graph).model.eval()
    with pytest.raises(HanmeError, match="60"):
        logits(model, graph, torch.tensor([3, 60]))


@every_model
def test_is_reproducible(name: str) -> None:
    graph = planted(**TINY)
    first, second, other = (trainer(name, graph, seed=seed) for seed in (1, 1, 2))
    for run in (first, second, other):
        for _ in range(3):
            run.step()
    assert equal(weights(first), weights(second))
    assert not equal(weights(first), weights(other))


@every_model
def test_the_seed_draws_every_weight(name: str) -> None:
    graph = planted(**TINY)
    check_seed(lambda: build_network(run_config(name).model, graph), graph)


@every_model
def test_saves_and_loads(name: str, tmp_path: Path) -> None:
    run = train(run_config(name), tmp_path / "run")
    assert OpenedRun.open(tmp_path / "run").evaluate() == run.result()["scores"]


@every_model
def test_gives_the_same_output_after_loading(name: str) -> None:
    graph = planted(**TINY)
    first, second = trainer(name, graph), trainer(name, graph, seed=5)
    first.step()
    assert not torch.equal(first.logits(), second.logits())
    second.model.load_state_dict(weights(first))
    assert torch.equal(first.logits(), second.logits())


def with_another(graph: Graph, kind: str) -> Graph:
    """The same links, the very same tensors, and a node more that has none."""
    dense = graph.nodes[kind].x.to_dense()
    x = torch.cat([dense, dense.new_zeros(1, dense.size(1))])
    return replace(
        graph, nodes=graph.nodes | {kind: replace(graph.nodes[kind], x=x, num_nodes=len(x))}
    )


@every_model
def test_what_was_made_of_a_graph_serves_no_other(name: str) -> None:
    graph = planted(**TINY)
    first, second = (with_another(graph, kind) for kind in ("keyword", "actor"))
    model = trainer(name, first).model.eval()
    with torch.no_grad():
        logits(model, first)
        fresh = copy.deepcopy(model)
        torch.testing.assert_close(logits(model, second), logits(fresh, second))


def single(graph: Graph) -> Graph:
    """The same graph with one label per node."""
    return replace(graph, y=graph.y.argmax(1))


def with_other_labels(graph: Graph, part: str) -> Graph:
    """The same graph with other labels of the nodes in a part."""
    mask, y = graph.split.parts()[part], graph.y
    if graph.multilabel:
        return replace(graph, y=torch.where(mask[:, None], 1 - y, y))
    return replace(graph, y=torch.where(mask, (y + 1) % len(graph.labels), y))


@pytest.mark.parametrize("hidden", ["val", "test"])
@every_model
def test_no_label_outside_the_training_nodes_changes_a_step(name: str, hidden: str) -> None:
    graph = planted(**TINY)
    runs = [trainer(name, graph) for graph in (graph, with_other_labels(graph, hidden))]
    for run in runs:
        for _ in range(3):
            run.step()
    assert equal(*map(weights, runs))
    assert torch.equal(*(run.logits() for run in runs))


@pytest.mark.parametrize("hidden", ["val", "test"])
@every_model
def test_nor_does_one_of_a_node_with_a_single_label(name: str, hidden: str) -> None:
    graph = single(planted(**TINY))
    runs = [trainer(name, graph) for graph in (graph, with_other_labels(graph, hidden))]
    for run in runs:
        run.step()
        run.step()
    assert equal(*map(weights, runs))
    assert torch.equal(*(run.logits() for run in runs))


@every_model
def test_learns_from_the_training_labels(name: str) -> None:
    # What the test above would pass without: labels that do count.
    graph = planted(**TINY)
    runs = [trainer(name, graph) for graph in (graph, with_other_labels(graph, "train"))]
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
        build_network(run_config(name, **{option: value}).model, planted(**TINY))

    with pytest.raises(HanmeError, match=f"{option}|multiple of heads") as raised:
        build()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["gat", "magna"])
def test_a_graph_without_relations(name: str) -> None:
    model = MODELS[name]((["film"], []), "film", 2)
    assert model(Batch({"film": torch.randn(4, 3)}, {})).shape == (4, 2)


@pytest.mark.parametrize("name", ["gat", "magna"])  # SeHGNN turns them into what it needs
def test_features_of_another_type_are_named(name: str) -> None:
    graph = planted(movies=20)
    x_dict = {kind: x.to_dense().double() for kind, x in graph.x_dict.items()}
    with pytest.raises(HanmeError, match=r"weights' type, torch\.float32, but got torch\.float64"):
        MODELS[name](graph.metadata(), "movie", 5)(Batch(x_dict, graph.edge_index_dict))
