"""Trees: what they learn, where they stop, and how they are explained and saved."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError
from hanme.graph import Graph, Split
from hanme.linear import Column, Trees
from hanme.linear.trees import TreesFit, screen_columns


def table(kind: str, rows: int = 900, width: int = 4) -> Graph:
    """A table whose label depends on two columns together."""
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(0))
    both = (x[:, 0] * x[:, 1] > 0).long()
    y = {
        "binary": both,
        "classes": both + (x[:, 2] > 1),
        "labels": torch.stack([both, 1 - both], 1).float(),
    }
    part = torch.arange(rows) % 3
    data = HeteroData()
    data["row"].x, data["row"].y = x, y[kind]
    return replace(Graph.from_hetero(data), split=Split.of(part))


def fitted(graph: Graph) -> TreesFit:
    return TreesFit(graph, [screened(graph)], [graph.split.train], [graph.split.val], seed=1)


def screened(graph: Graph, limit: int = 400) -> list[Column]:
    (found,) = screen_columns(graph, [graph.split.train], 1, limit)
    return found.columns


@pytest.mark.parametrize("kind", ["binary", "classes", "labels"])
def test_they_find_what_two_columns_say_together(kind: str) -> None:
    graph = table(kind)
    fit = fitted(graph)
    trees, test = fit.trees(0), graph.split.test
    logits = trees.predict(graph)
    assert logits.shape == (900, len(graph.labels))
    right = (logits > 0) == (graph.y > 0) if graph.multilabel else logits.argmax(1) == graph.y
    assert right[test].float().mean() > 0.85
    some = torch.tensor([5, 2])
    torch.testing.assert_close(trees.predict(graph, some), logits[some])
    assert torch.equal(sum(trees.block_logits(graph).values()), logits)
    for node in (5, 2):
        found = trees.contributions(graph, node)
        assert found.logits == pytest.approx(logits[node].double().numpy(), abs=1e-4)
    own, linked = found.parts
    assert {0, 1} <= set(own.numbers[np.abs(own.values[:, 0]).argsort()[-3:]])
    assert not len(linked.numbers)


def test_noise_gets_few_rounds_and_few_rows_get_none() -> None:
    graph = table("binary")
    y = torch.randint(0, 2, (900,), generator=torch.Generator().manual_seed(1))
    assert fitted(replace(graph, y=y)).rounds() < fitted(graph).rounds()
    small = torch.arange(900) < 60
    split = Split(graph.split.train & small, graph.split.val & small, graph.split.test)
    assert fitted(replace(graph, split=split)).rounds() == 0


def test_a_set_s_rounds_are_chosen_by_the_others() -> None:
    graph = table("binary")
    masks = [graph.split.train, graph.split.val]
    fit = TreesFit(graph, [screened(graph)] * 2, masks, masks[::-1], seed=1)
    fit.losses = [[7.0, 7.0], [5.0, 1.0], [1.0, 2.0], [3.0, 3.0]]
    assert (fit.rounds(), fit.rounds(without=0), fit.rounds(without=1)) == (2, 1, 2)


def test_they_are_the_same_after_saving() -> None:
    graph = table("classes")
    trees = fitted(graph).trees(0)
    values, tensors = trees.state()
    values.pop("kind")
    again = Trees.from_state(values, tensors)
    assert torch.equal(again.predict(graph), trees.predict(graph))
    with pytest.raises(HanmeError):
        Trees.from_state(values, {"booster": torch.zeros(9, dtype=torch.uint8)})
    with pytest.raises(HanmeError):
        again.predict(replace(graph, nodes={"row": replace(graph.targets, x=torch.rand(900, 2))}))


def test_columns_are_screened_by_the_labels_of_training_nodes() -> None:
    graph = table("binary", width=60)
    graph = replace(graph, y=(graph.targets.x[:, :2].sum(1) > 0).long())
    assert len(screened(graph)) == 60
    kept = [column.feature for column in screened(graph, limit=10)]
    assert {0, 1} <= set(kept)
    assert len(kept) == 10
    y = graph.y.clone()
    y[~graph.split.train] = 1 - y[~graph.split.train]
    again = screened(replace(graph, y=y), limit=10)
    assert [column.feature for column in again] == kept


def test_words_of_unknown_origin_are_left_out() -> None:
    graph = table("binary")
    words = torch.zeros(900, 500)
    words[torch.arange(900), torch.arange(900) % 500] = 1
    many = replace(graph, nodes={"row": replace(graph.targets, x=words)})
    assert not screened(many)
    assert fitted(many).rounds() == 0
