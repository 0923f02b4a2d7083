"""The search for metapaths finds those whose labels agree, and never reads a node's own label."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from commands import hanme
from hanme.data import load
from hanme.graph.metapath import metapaths_between
from hanme.linear.search import search_metapaths

OPTIONS = {"movies": 400}


@pytest.fixture(scope="module")
def graph():
    return load("planted", seed=0, options=OPTIONS)


def candidates(graph, hops: int = 4):
    return list(metapaths_between(graph.metadata(), graph.target, hops))


def test_it_finds_the_planted_relation_first(graph) -> None:
    found = search_metapaths(graph, candidates(graph))
    assert (found[0].metapath.text, found[0].rank) == ("movie-actor-movie", 1)
    assert found[0].gain > 0.05
    alone = [row.alone for row in found if row.rank is None]
    assert alone == sorted(alone, reverse=True)


def test_random_labels_select_nothing(graph) -> None:
    order = torch.randperm(len(graph.y), generator=torch.Generator().manual_seed(1))
    found = search_metapaths(replace(graph, y=graph.y[order]), candidates(graph, 2))
    assert max(row.alone for row in found) < 0.02


def test_hidden_labels_are_not_read(graph) -> None:
    hidden = ~graph.split.train
    flipped = graph.y.clone()
    flipped[hidden] = flipped[hidden].roll(1, 0)
    changed = replace(graph, y=flipped)
    assert search_metapaths(changed, candidates(graph, 2)) == search_metapaths(
        graph, candidates(graph, 2)
    )


def test_the_share_explained_is_that_of_logistic_regression() -> None:
    graph = load("planted", seed=0, options=OPTIONS | {"genres": 2})
    path = candidates(graph, 2)[0]
    (row,) = search_metapaths(graph, [path])
    train = graph.split.train.nonzero().flatten().tolist()
    labels = graph.label_matrix.double()
    known, shares = set(train), labels[train].mean(0)
    # The mean label of the other training movies at the ends, by walking every instance.
    links = [dict[int, list[int]]() for _ in path.steps]
    for hop, step in zip(links, path.steps, strict=True):
        for source, end in graph.links[step].t().tolist():
            hop.setdefault(source, []).append(end)
    x = []
    for root in train:
        ends = [v for u in links[0].get(root, []) for v in links[1].get(u, []) if v != root]
        rows = [labels[v] - shares for v in ends if v in known]
        x.append(sum(rows, torch.zeros(2)) / max(1, len(ends)))
    # One slope for all labels and a bias for each: logistic regression on the stacked labels.
    column = torch.stack(x).flatten().numpy()
    bias = np.tile(np.eye(2), (len(train), 1))
    inputs, y = np.column_stack([column / column.std(), bias]), labels[train].flatten().numpy()
    fitted = LogisticRegression(C=1e6, fit_intercept=False).fit(inputs, y)
    expected = log_loss(y, fitted.predict_proba(inputs))
    base = log_loss(y, shares.repeat(len(train)).numpy())
    assert row.alone == pytest.approx(1 - expected / base, abs=0.01)


def test_the_budget_is_kept_and_metapaths_beyond_it_are_shown(graph) -> None:
    found = search_metapaths(graph, candidates(graph))
    chosen = [row for row in found if row.rank]
    budget = sum(row.instances for row in chosen) - 1
    less = search_metapaths(graph, candidates(graph), budget)
    assert sum(row.instances for row in less if row.rank) <= budget
    alone = {row.metapath: row.alone for row in found}
    assert {row.metapath: row.alone for row in less} == alone


def test_inspect_prints_candidates_costs_and_the_next_command() -> None:
    settings = ("--set", "data.options.movies=200", "--search", "--hops", "2")
    rows = json.loads(hanme("inspect", "planted", *settings, "--json").stdout)["search"]
    assert rows[0]["rank"] == 1
    assert rows[0]["instances"] > 100
    said = hanme("inspect", "planted", *settings).stdout
    assert f"hanme train planted -m {rows[0]['metapath']}" in said
