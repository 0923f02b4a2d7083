"""Instances drawn by number: evenly, without replacement, and the same in any company."""

from collections import Counter
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from graphs import random_chain
from hanme.common.arrays import keyed
from hanme.graph import Graph, Nodes, Split
from hanme.graph.subgraph import distinct, sample_instances


def graph_of(chain) -> Graph:
    """The graph of a random chain, with the dead ends that the chain has lost put back."""
    steps = chain.metapath.steps
    links = {
        step: torch.stack([chain.sources(hop), chain.indices[hop]])
        for hop, step in enumerate(steps)
    }
    dead = torch.tensor([[0], [0]])
    if len(steps) > 1 and not (links[steps[1]][0] == 0).any():  # a link to a node without any
        links[steps[0]] = torch.cat([links[steps[0]], dead], 1)
    types = chain.metapath.node_types
    nodes = {t: Nodes(t, n) for t, n in zip(types, chain.sizes, strict=True)}
    none = torch.zeros(chain.sizes[0], dtype=torch.bool)
    return Graph(nodes, links, types[0], none.long(), ["a"], Split(none, none, none))


@given(
    hops=st.integers(1, 4), seed=st.integers(0, 10**6), n=st.integers(1, 4), key=st.integers(0, 99)
)
@settings(max_examples=40)
def test_what_is_drawn_are_instances_each_once(hops: int, seed: int, n: int, key: int) -> None:
    chain = random_chain(hops, seed=seed)
    every = torch.arange(chain.sizes[0])
    found = sample_instances(graph_of(chain), chain.metapath.steps, every, n, key)
    listed = Counter(map(tuple, chain.instances().nodes.tolist()))
    drawn = Counter(map(tuple, found.tolist()))
    assert drawn <= listed  # parallel links are instances of their own
    counts = torch.bincount(found[:, 0], minlength=chain.sizes[0])
    assert counts.equal(chain.count().clamp(max=n))
    assert found[:, 0].equal(found[:, 0].sort().values)


def test_all_instances_are_drawn_where_there_are_no_more() -> None:
    chain = random_chain(3, seed=5, density=0.6)
    every = torch.arange(chain.sizes[0])
    found = sample_instances(graph_of(chain), chain.metapath.steps, every, 10**6, 1)
    assert found.equal(chain.instances().nodes)


def test_a_root_s_draw_does_not_depend_on_the_others() -> None:
    chain = random_chain(2, seed=3, size=9, density=0.8)
    graph, steps = graph_of(chain), chain.metapath.steps
    together = sample_instances(graph, steps, torch.arange(chain.sizes[0]), 3, 7)
    for root in range(chain.sizes[0]):
        alone = sample_instances(graph, steps, torch.tensor([root]), 3, 7)
        assert alone.equal(together[together[:, 0] == root])
    assert not together.equal(sample_instances(graph, steps, torch.arange(chain.sizes[0]), 3, 8))


def test_every_instance_is_drawn_as_often() -> None:
    chain = random_chain(2, seed=2, size=8, density=0.7)
    root = int(chain.count().argmax())
    graph, n, rounds = graph_of(chain), 4, 800
    drawn = Counter[tuple[int, ...]]()
    for seed in range(rounds):
        found = sample_instances(graph, chain.metapath.steps, torch.tensor([root]), n, seed)
        drawn.update(map(tuple, found.tolist()))
    listed = Counter(map(tuple, chain.instances(torch.tensor([root])).nodes.tolist()))
    assert sum(listed.values()) > 2 * n
    share = rounds * n / sum(listed.values())
    observed = [drawn[instance] for instance in listed]
    assert chisquare(observed, [share * times for times in listed.values()]).pvalue > 1e-3


@pytest.mark.parametrize(("count", "n"), [(5, 3), (8, 3)], ids=["few", "many"])
def test_every_set_of_numbers_is_as_likely(count: int, n: int) -> None:
    rows = 20_000
    row, number = distinct(keyed(3, torch.arange(rows)), torch.full((rows,), count), n)
    assert row.equal(torch.arange(rows).repeat_interleave(n))
    found = Counter(map(tuple, number.view(rows, n).tolist()))
    assert set(found) == set(combinations(range(count), n))
    assert chisquare(list(found.values())).pvalue > 1e-3
