"""SeHGNN's averages against SciPy's products, and its labels against dense matrices."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from hanme import Graph
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.nn import SeHGNN
from hanme.nn.batch import Batch
from hanme.training import Trainer, TrainingConfig

SIZES = {"hidden_channels": 8, "heads": 2}


def citing() -> Graph:
    """A planted graph, and two relations that join movies, one link of which is there twice."""
    graph = planted(movies=40)
    links = torch.randint(40, (2, 50), generator=torch.Generator().manual_seed(0))
    cites = {
        ("movie", "cites", "movie"): torch.cat([links, links[:, :1]], 1),
        ("movie", "follows", "movie"): links.flip(0),
    }
    return replace(graph, links=graph.links | cites)


def make(graph: Graph, **options: object) -> SeHGNN:
    return SeHGNN(graph.metadata(), "movie", 5, in_channels=graph.widths, **SIZES, **options)


def given(graph: Graph, roots: Tensor | None = None) -> Batch:
    return Batch.of(graph, roots)


def logits(model: SeHGNN, graph: Graph, roots: Tensor | None = None) -> Tensor:
    return model(Batch.of(graph, roots))


def mean(graph: Graph, a: str, b: str) -> np.ndarray:
    shape = graph.sizes[a], graph.sizes[b]
    matrix = np.eye(*shape) if a == b else np.zeros(shape)
    for e, links in graph.links.items():
        if (e[0], e[2]) == (a, b):
            matrix[tuple(links.numpy())] = 1  # once, however many links join the pair
    return matrix / np.maximum(matrix.sum(1, keepdims=True), 1)


def product(factors: list[Tensor]) -> np.ndarray:
    result = factors[0].to_dense().double().numpy()
    for factor in factors[1:]:
        result = result @ factor.to_dense().double().numpy()
    return result


def test_features_are_the_products_of_row_normalised_matrices() -> None:
    graph = citing()
    features = make(graph, hops=3, label_hops=0).channels[0]
    near = ["actor", "director", "keyword", "movie"]
    assert features.paths[:5] == [("movie",), *(("movie", t) for t in near)]
    roots = torch.tensor([7, 3, 39, 7])
    found = features.averages(given(graph))
    some = features.averages(given(graph, roots))
    assert len(found) == len(features.paths) == 1 + 4 + (3 + 4) + (3 * 4 + 3 + 4)
    for path, every, few in zip(features.paths, found, some, strict=True):
        x = graph.x_dict[path[-1]]
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        expected = csr_array(parts, shape=tuple(x.shape)).astype(float)
        for pair in reversed(list(pairwise(path))):
            expected = csr_array(mean(graph, *pair)) @ expected
        np.testing.assert_allclose(product(every), expected.toarray(), rtol=1e-4, atol=1e-6)
        rows = expected.toarray()[roots]
        np.testing.assert_allclose(product(few), rows, rtol=1e-4, atol=1e-6)
    assert any(len(factors) > 1 for factors in found)
    assert any(len(f) < len(p) for p, f in zip(features.paths, found, strict=True))


@pytest.mark.parametrize("multilabel", [True, False])
def test_labels_are_those_of_other_training_nodes(multilabel: bool) -> None:
    graph = citing()
    if not multilabel:
        graph = replace(graph, y=graph.y.argmax(1))
    channels = make(graph, hops=0, label_hops=4).channels[1]
    assert ("movie", "movie") in channels.paths
    assert ("movie", "actor", "movie", "keyword", "movie") in channels.paths
    y = np.zeros((40, 5))
    for node in graph.split.train.nonzero().flatten().tolist():
        y[node] = graph.y[node] if multilabel else np.eye(5)[graph.y[node]]
    for path, (labels,) in zip(channels.paths, channels.averages(given(graph)), strict=True):
        matrix = np.eye(40)
        for pair in pairwise(path):
            matrix = matrix @ mean(graph, *pair)
        np.fill_diagonal(matrix, 0)
        np.testing.assert_allclose(labels.numpy(), matrix @ y, rtol=1e-4, atol=1e-6)


def test_labels_must_be_given_where_they_are_used() -> None:
    graph = citing()
    with pytest.raises(HanmeError, match=r"`labels` to be .* \[N, 5\], .* but got none"):
        make(graph)(Batch(graph.x_dict, graph.edge_index_dict))


def test_a_node_s_own_label_never_reaches_it() -> None:
    graph = citing()
    node = int(graph.split.train.nonzero()[3])
    changed = replace(graph, y=graph.y.clone())
    changed.y[node] = 1 - graph.y[node]
    channels = make(graph, hops=1, label_hops=4).channels[1]
    before, after = (channels.averages(given(x)) for x in (graph, changed))
    for (a,), (b,) in zip(before, after, strict=True):
        torch.testing.assert_close(a[node], b[node], rtol=0, atol=1e-6)
    assert any(not torch.equal(a, b) for (a,), (b,) in zip(before, after, strict=True))


def test_what_is_made_of_a_graph_is_made_once_until_it_changes() -> None:
    graph = citing()
    features, labels = make(graph, hops=1, label_hops=2).channels
    batch = given(graph)
    roots = replace(batch, roots=torch.tensor([3, 5]))
    for asked in (batch, roots):
        first = features.averages(asked)
        assert features.averages(asked) is first
    (label, *_), (again, *_) = labels.averages(batch), labels.averages(batch)
    assert label[0] is again[0]
    batch.labels[0] = 1 - batch.labels[0]
    assert labels.averages(batch)[0][0] is not label[0]
    first = features.averages(batch)
    graph.links["movie", "cites", "movie"][0] = 1
    assert features.averages(batch) is not first


def test_the_gate_is_shut_at_first() -> None:
    attention = make(citing(), hops=1, label_hops=0).fusion.attention
    x = torch.randn(6, 5, 8)
    assert torch.equal(attention(x), x)
    with torch.no_grad():
        attention.gate.fill_(0.5)
    # One node and head by hand.
    parts = (attention.query, attention.key, attention.value)
    q, k, v = (lin(x[0]).view(5, 2, -1)[:, 1] for lin in parts)
    beta = torch.softmax(q @ k.t() / q.size(1) ** 0.5, 1)
    torch.testing.assert_close(attention(x)[0, :, 4:], x[0, :, 4:] + 0.5 * beta @ v)


def test_while_training_only_training_nodes_are_computed() -> None:
    graph = citing()
    model = make(graph, hops=2, label_hops=2, dropout=0)
    asked = []
    model.register_forward_pre_hook(lambda _, args: asked.append(args[0].roots))
    trainer = Trainer(model, graph, TrainingConfig(recipe="paper"))
    asked.clear()
    trainer.step()
    training, scoring = asked
    assert training.equal(graph.split.train.nonzero().flatten())
    assert scoring is None


def test_input_dropout_is_for_training_alone() -> None:
    graph = citing()
    model = make(graph, input_dropout=0.9, dropout=0.0, hops=1)
    first, second = (logits(model.train(), graph) for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (logits(model.eval(), graph) for _ in range(2))
    assert torch.equal(first, second)


def test_types_can_be_left_out() -> None:
    graph = citing()
    model = make(graph, hops=2, without=["keyword"])
    assert not any("keyword" in path for part in model.channels for path in part.paths)
    with pytest.raises(HanmeError, match="unknown node type 'word'; there are movie, actor"):
        make(graph, without=["word"])


def test_more_metapaths_than_a_model_can_hold_are_refused_at_once() -> None:
    with pytest.raises(HanmeError, match=r"at most 1000 metapaths.*fewer hops"):
        make(citing(), hops=20)


def test_a_norm_over_one_node_is_refused() -> None:
    graph = citing()
    model = make(graph, hops=1, label_hops=0)
    with pytest.raises(HanmeError, match="expected 2 or more, but got 1"):
        logits(model, graph, torch.tensor([3]))
