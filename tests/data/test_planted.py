"""What :func:`hanme.data.planted` promises, read off the graphs it makes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from hanme.data import load, planted
from hanme.errors import HanmeError
from hanme.graph import Graph

TYPES = ("movie", "actor", "director", "keyword")


def same(a: Graph, b: Graph) -> bool:
    x = b.x_dict
    return (
        all(a.x_dict[t].shape == x[t].shape for t in TYPES)
        and all(a.nodes[t].names == b.nodes[t].names for t in TYPES)
        and all(torch.equal(a.x_dict[t].to_dense(), x[t].to_dense()) for t in TYPES)
        and all(torch.equal(a.links[e], b.links[e]) for e in a.edge_types)
        and all(map(torch.equal, (*a.split, a.y), (*b.split, b.y)))
        and torch.equal(a.targets.extra["level"], b.targets.extra["level"])
    )


def cast(data: Graph, role: str, *, specialist: bool) -> sp.csr_array:
    """Movies by people of one kind."""
    movie, person = data.links["movie", "to", role].numpy()
    size = (data.sizes["movie"], data.sizes[role])
    matrix = sp.csr_array((np.ones(len(movie)), (movie, person)), size)
    return matrix[:, data.nodes[role].extra["specialist"].numpy() == specialist]


def genres(data: Graph) -> np.ndarray:
    """The genres in sight, labelled movies' by their labels and sources' by their words."""
    movie, count = data.targets, len(data.labels)
    words = movie.x.to_dense().reshape(movie.num_nodes, count + 1, -1).sum(2)[:, :count]
    return torch.where(movie.extra["level"][:, None] == 0, words > 0, data.y > 0).float().numpy()


def agreement(data: Graph, steps: sp.csr_array | None = None) -> float:
    """The share of pairs (labelled, source) with a genre in common, of those linked by steps."""
    level, has = data.targets.extra["level"].numpy(), genres(data)
    pairs = np.ix_(level == level.max(), level == 0)
    common = (has @ has.T > 0)[pairs]
    return float(common.mean() if steps is None else common[steps.toarray()[pairs] > 0].mean())


def lift(x: torch.Tensor, y: np.ndarray) -> float:
    """Accuracy of a regression from words to y, above that of always naming the most frequent."""
    score = cross_val_score(LogisticRegression(max_iter=500), x.to_dense().numpy(), y, cv=5).mean()
    return float(score - np.bincount(y).max() / len(y))


def test_features_and_files_are_not_ignored(tmp_path: Path) -> None:
    assert same(load("planted"), planted())
    actors = load("planted", features="onehot").nodes["actor"].x.to_dense()
    assert torch.equal(actors, torch.eye(len(actors)))
    mean = load("planted", features="mean")
    assert mean.widths["actor"] == mean.widths["movie"]
    with pytest.raises(HanmeError, match="takes no files"):
        load("planted", source=tmp_path)


def test_attributes() -> None:
    data = planted()
    assert (data.target, data.multilabel) == ("movie", True)
    assert set(data.node_types) == set(TYPES)
    there = {("movie", "to", other) for other in TYPES[1:]}
    assert set(data.edge_types) == there | {relation[::-1] for relation in there}
    assert data.to_hetero().validate()
    for kind in TYPES:
        node = data.nodes[kind]
        assert node.x.layout == torch.sparse_csr
        assert node.x.dtype == torch.float32
        assert len(node.x) == node.num_nodes == len(node.names) == len(set(node.names))
        assert (np.diff(node.x.crow_indices()) > 0).all()
    assert data.y.shape == (600, 5)
    assert data.y.dtype == torch.float32
    assert len(set(data.labels)) == 5
    truth = {kind: set(nodes.extra) for kind, nodes in data.nodes.items() if nodes.extra}
    assert truth == {"movie": {"level"}, "actor": {"specialist"}, "director": {"specialist"}}
    assert (data.y.sum(1) == 2).any()


def test_edges_are_unique_and_have_their_reverse() -> None:
    data = planted(movies=20, guests=12)
    for other in TYPES[1:]:
        there = data.links["movie", "to", other]
        assert torch.equal(there.unique(dim=1), there)
        assert torch.equal(data.links[other, "to", "movie"], there.flip(0))
        assert set(there[0].tolist()) == set(range(20))
        assert set(there[1].tolist()) == set(range(data.sizes[other]))


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_masks_share_out_the_labelled_movies(hops: int) -> None:
    data = planted(hops=hops)
    masks, level = torch.stack(data.split), data.targets.extra["level"]
    labelled = level == hops
    assert torch.equal(masks.sum(0), labelled.long())
    assert masks.sum(1).tolist() == [120, 60, 120]
    assert torch.equal(data.y.sum(1) > 0, labelled)
    assert level.unique().tolist() == list(range(hops + 1))


def test_the_seed_decides() -> None:
    assert same(planted(seed=1), planted(seed=1))
    assert not same(planted(seed=1), planted(seed=2))


@pytest.mark.parametrize("movies", [10, 11, 37, 1000])
def test_any_size(movies: int) -> None:
    data = planted(movies=movies)
    assert data.sizes["movie"] == movies
    assert all(mask.any() for mask in data.split)


def test_twenty_thousand_movies_take_seconds() -> None:
    start = time.perf_counter()
    data = planted(movies=20_000, hops=2)
    assert time.perf_counter() - start < 20
    assert all(len(set(node.names)) == node.num_nodes for node in data.nodes.values())


@pytest.mark.parametrize("role", ["actor", "director"])
def test_only_paths_through_specialists_keep_the_genre(role: str) -> None:
    data = planted(movies=2000, noise=0)
    specialists, guests = (cast(data, role, specialist=kind) for kind in (True, False))
    assert agreement(data, specialists @ specialists.T) == 1
    assert agreement(data, guests @ guests.T) == pytest.approx(agreement(data), abs=0.06)


def test_noise_misleads_specialists() -> None:
    lifts = []
    for noise in (0.0, 0.3, 0.9):
        data = planted(movies=2000, noise=noise)
        specialists = cast(data, "actor", specialist=True)
        lifts.append(agreement(data, specialists @ specialists.T) - agreement(data))
    assert lifts[0] > lifts[1] + 0.1 > lifts[2] + 0.2
    assert lifts[2] < 0.1  # not 0: movies of two genres have more links


def test_noise_takes_words_from_sources() -> None:
    for noise in (0.0, 0.25, 1.0):
        movie = planted(movies=1000, noise=noise).targets
        sources = movie.x.to_dense()[movie.extra["level"] == 0]
        words = sources.reshape(-1, 6, sources.shape[1] // 6).sum((0, 2))
        assert words[5] / words.sum() == pytest.approx(noise, abs=0.02)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_signal_is_hops_away(hops: int) -> None:
    data = planted(movies=2000, hops=hops, noise=0)
    specialists = cast(data, "actor", specialist=True)
    step, level = specialists @ specialists.T, data.targets.extra["level"].numpy()
    walk = step
    for _ in range(hops - 1):
        assert walk.toarray()[np.ix_(level == hops, level == 0)].sum() == 0
        walk = walk @ step
    assert agreement(data, walk) > agreement(data) + 0.1


def test_only_sources_show_their_genre() -> None:
    data = planted(movies=2000)
    x = data.targets.x.to_dense()
    labelled = data.targets.extra["level"] == 1
    words = x.reshape(2000, 6, -1).sum(2)
    assert (words[labelled, :5] == 0).all()
    assert (words[~labelled, :5].sum(1) > 0).all()
    single = labelled & (data.y.sum(1) == 1)
    rows = single.nonzero().flatten()
    assert lift(x[rows], data.y[rows].argmax(1).numpy()) < 0.03


@pytest.mark.parametrize("role", ["actor", "director"])
def test_words_of_people_tell_their_kind_as_surely_as_asked(role: str) -> None:
    lifts = []
    for intermediate in (0.0, 0.5, 1.0):
        node = planted(movies=3000, intermediate=intermediate).nodes[role]
        lifts.append(lift(node.x, node.extra["specialist"].long().numpy()))
    share = float(node.extra["specialist"].float().mean())
    assert lifts[0] < 0.03
    assert lifts[0] + 0.1 < lifts[1] < lifts[2] - 0.1
    assert lifts[2] == pytest.approx(1 - max(share, 1 - share))


@pytest.mark.parametrize("intermediate", [0.0, 1.0])
def test_words_of_specialists_do_not_tell_their_genre(intermediate: float) -> None:
    data = planted(movies=8000, noise=0, intermediate=intermediate)
    votes = cast(data, "actor", specialist=True).T @ data.y.numpy()
    actor = data.nodes["actor"]
    x = actor.x.to_dense()[actor.extra["specialist"]]
    assert len(x) > 1000
    assert lift(x, votes.argmax(1)) < 0.03


def test_guests_and_credits_set_the_casts() -> None:
    few, many = planted(guests=1, credits=5), planted(guests=6, credits=20)
    for data, guests, credits in ((few, 1, 5), (many, 6, 20)):
        matrix = cast(data, "actor", specialist=False)
        assert matrix.sum(1).mean() == pytest.approx(guests, rel=0.1)
        assert matrix.sum(0).mean() == pytest.approx(credits, rel=0.1)
        assert cast(data, "actor", specialist=True).sum(0).max() <= credits
    assert planted(guests=0).nodes["actor"].extra["specialist"].all()


@pytest.mark.parametrize(
    "knob",
    [
        {"movies": 9},
        {"movies": 19, "hops": 2},
        {"movies": 12.5},
        {"genres": 0},
        {"hops": 0},
        {"guests": -1},
        {"credits": 1},
        {"seed": -1},
        {"intermediate": 1.1},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"noise": "much"},
    ],
)
def test_a_knob_out_of_range_is_refused(knob: dict[str, Any]) -> None:
    with pytest.raises(HanmeError, match=f"^{next(iter(knob))}: expected .*, got [^\n]*$"):
        planted(**knob)
