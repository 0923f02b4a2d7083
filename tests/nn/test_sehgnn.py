"""SeHGNN's averages against SciPy's products, and its labels against dense matrices."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets import planted
from hanme.errors import HanmeError
from hanme.nn import SeHGNN

SIZES = {"hidden_channels": 8, "heads": 2}


def graph() -> HeteroData:
    """A planted graph, and two relations that join movies, one link of which is there twice."""
    data = planted(movies=40)
    generator = torch.Generator().manual_seed(0)
    links = torch.randint(40, (2, 50), generator=generator)
    data["movie", "cites", "movie"].edge_index = torch.cat([links, links[:, :1]], 1)
    data["movie", "follows", "movie"].edge_index = links.flip(0)
    return data


def mean(data: HeteroData, a: str, b: str) -> np.ndarray:
    shape = data[a].num_nodes, data[b].num_nodes
    matrix = np.eye(*shape) if a == b else np.zeros(shape)
    for e in data.edge_types:
        if (e[0], e[2]) == (a, b):
            np.add.at(matrix, tuple(data[e].edge_index.numpy()), 1)
    return matrix / np.maximum(matrix.sum(1, keepdims=True), 1)


def product(factors: list[Tensor]) -> np.ndarray:
    result = factors[0].to_dense().double().numpy()
    for factor in factors[1:]:
        result = result @ factor.to_dense().double().numpy()
    return result


def test_features_are_the_products_of_row_normalised_matrices() -> None:
    data = graph()
    model = SeHGNN(data.metadata(), "movie", 5, hops=3, label_hops=0, **SIZES)
    near = ["actor", "director", "keyword", "movie"]
    assert model.paths[:5] == [("movie",), *(("movie", t) for t in near)]
    found = model.aggregated(data)
    train = data["movie"].train_mask.numpy()
    assert len(found.every) == len(model.paths) == 1 + 4 + (3 + 4) + (3 * 4 + 3 + 4)
    for path, every, few in zip(model.paths, found.every, found.train, strict=True):
        x = data[path[-1]].x
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        expected = csr_array(parts, shape=tuple(x.shape)).astype(float)
        for pair in reversed(list(pairwise(path))):
            expected = csr_array(mean(data, *pair)) @ expected
        np.testing.assert_allclose(product(every), expected.toarray(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(product(few), expected.toarray()[train], rtol=1e-4, atol=1e-6)
    assert any(len(factors) > 1 for factors in found.every)
    assert any(len(f) < len(p) for p, f in zip(model.paths, found.every, strict=True))


@pytest.mark.parametrize("multilabel", [True, False])
def test_labels_are_those_of_other_training_nodes(multilabel: bool) -> None:
    data = graph()
    if not multilabel:
        data["movie"].y = data["movie"].y.argmax(1)
    model = SeHGNN(data.metadata(), "movie", 5, hops=0, label_hops=4, **SIZES)
    assert ("movie", "movie") in model.label_paths
    assert ("movie", "actor", "movie", "keyword", "movie") in model.label_paths
    y = np.zeros((40, 5))
    for node in data["movie"].train_mask.nonzero().flatten().tolist():
        y[node] = data["movie"].y[node] if multilabel else np.eye(5)[data["movie"].y[node]]
    found = model.aggregated(data).every[1:]
    for path, (labels,) in zip(model.label_paths, found, strict=True):
        matrix = np.eye(40)
        for pair in pairwise(path):
            matrix = matrix @ mean(data, *pair)
        np.fill_diagonal(matrix, 0)
        np.testing.assert_allclose(labels.numpy(), matrix @ y, rtol=1e-4, atol=1e-6)


def test_a_node_s_own_label_never_reaches_it() -> None:
    data = graph()
    changed = data.clone()
    node = int(data["movie"].train_mask.nonzero()[3])
    changed["movie"].y[node] = 1 - data["movie"].y[node]
    model = SeHGNN(data.metadata(), "movie", 5, hops=1, label_hops=4, **SIZES)
    before, after = (model.aggregated(x).every[len(model.paths) :] for x in (data, changed))
    for (a,), (b,) in zip(before, after, strict=True):
        torch.testing.assert_close(a[node], b[node], rtol=0, atol=1e-6)
    assert any(not torch.equal(a, b) for (a,), (b,) in zip(before, after, strict=True))


def test_what_is_made_of_a_graph_is_made_once_until_it_changes() -> None:
    data = graph()
    model = SeHGNN(data.metadata(), "movie", 5, hops=1, label_hops=2, **SIZES)
    first = model.aggregated(data)
    assert model.aggregated(data) is first
    data["movie"].y[0] = 1 - data["movie"].y[0]
    assert model.aggregated(data) is not first


def test_the_gate_is_shut_at_first() -> None:
    model = SeHGNN(graph().metadata(), "movie", 5, hops=1, label_hops=0, **SIZES)
    x = torch.randn(6, 5, 8)
    assert torch.equal(model.fusion(x), x)
    with torch.no_grad():
        model.fusion.gate.fill_(0.5)
    # One node and head by hand.
    parts = (model.fusion.query, model.fusion.key, model.fusion.value)
    q, k, v = (lin(x[0]).view(5, 2, -1)[:, 1] for lin in parts)
    beta = torch.softmax(q @ k.t() / q.size(1) ** 0.5, 1)
    torch.testing.assert_close(model.fusion(x)[0, :, 4:], x[0, :, 4:] + 0.5 * beta @ v)


def test_while_training_only_training_nodes_are_computed() -> None:
    data = graph()
    model = SeHGNN(data.metadata(), "movie", 5, hops=2, label_hops=2, dropout=0, **SIZES)
    model(data)
    logits = model.train()(data)
    train = data["movie"].train_mask
    assert logits[train].abs().min() > 0
    assert not logits[~train].any()


def test_input_dropout_is_for_training_alone() -> None:
    data = graph()
    model = SeHGNN(data.metadata(), "movie", 5, input_dropout=0.9, dropout=0.0, hops=1, **SIZES)
    first, second = (model.train()(data) for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (model.eval()(data) for _ in range(2))
    assert torch.equal(first, second)


def test_types_can_be_left_out() -> None:
    data = graph()
    model = SeHGNN(data.metadata(), "movie", 5, hops=2, without=["keyword"], **SIZES)
    assert not any("keyword" in path for path in [*model.paths, *model.label_paths])
    with pytest.raises(HanmeError, match="unknown node type 'word'; there are movie, actor"):
        SeHGNN(data.metadata(), "movie", 5, without=["word"], **SIZES)


def test_more_metapaths_than_a_model_can_hold_are_refused_at_once() -> None:
    with pytest.raises(HanmeError, match=r"at most 1000 metapaths.*fewer hops"):
        SeHGNN(graph().metadata(), "movie", 5, hops=20, **SIZES)


def test_a_norm_over_one_node_is_refused() -> None:
    data = graph()
    model = SeHGNN(data.metadata(), "movie", 5, hops=1, label_hops=0, **SIZES)
    model.eval()(data)
    data["movie"].train_mask[:] = False
    data["movie"].train_mask[3] = True
    with pytest.raises(HanmeError, match="expected 2 or more, but got 1"):
        model.train()(data)
