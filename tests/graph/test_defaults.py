"""Default metapaths: counted and judged against the list of their instances, and left out."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hanme.graph import Graph, Nodes, Split, defaults
from hanme.graph.chain import Chain
from hanme.graph.defaults import (
    instances,
    leads_back,
    there_and_back,
    why_none,
    with_defaults,
)
from hanme.graph.metapath import metapaths_between

SIZES = {"a": 4, "b": 3}
BY_C, BY_D, BY_E = "a-c:b-rev_c:a", "a-d:b-rev_d:a", "a-e:b-rev_e:a"


def graph_of(**relations: list[tuple[int, int]]) -> Graph:
    mask = torch.ones(SIZES["a"], dtype=torch.bool)
    links = {}
    for name, pairs in relations.items():
        there = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
        links["a", name, "b"], links["b", f"rev_{name}", "a"] = there, there.flip(0)
    nodes = {kind: Nodes(kind, size) for kind, size in SIZES.items()}
    return Graph(
        nodes, links, "a", torch.zeros(4, dtype=torch.long), ["x"], Split(mask, mask, mask)
    )


PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=6)


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_counts_and_returns_agree_with_the_list(
    c: list[tuple[int, int]], d: list[tuple[int, int]]
) -> None:
    graph = graph_of(c=c, d=d)
    for metapath in metapaths_between(graph.metadata(), "a", 4):
        listed = Chain.build(metapath, graph.links, graph.sizes).instances().nodes
        assert instances(metapath, graph) == len(listed)
        same = (listed[:, 0] == listed[:, -1]).tolist()
        assert leads_back(metapath, graph) == (bool(same) and all(same))


C = [(0, 0), (1, 0)]  # 4 instances
D = [(0, 0), (1, 0), (2, 0)]  # 9
E = [(0, 0), (1, 1), (2, 2)]  # 3, each back to its root


@pytest.mark.parametrize(
    ("budget", "limit", "kept"),
    [
        (13, 100, [BY_D, BY_C]),  # in the order they were given in
        (12, 100, [BY_C]),
        (3, 100, [BY_C]),  # over the budget, but one has to be there
        (3, 4, [BY_E]),  # one that leads back is better than none
        (2, 3, []),
    ],
)
def test_the_smallest_are_kept(budget: int, limit: int, kept: list[str], monkeypatch) -> None:
    monkeypatch.setattr(defaults, "BUDGET", budget)
    monkeypatch.setattr(defaults, "LIMIT", limit)
    graph = with_defaults(graph_of(c=C, d=D, e=E), [BY_D, BY_E, BY_C])
    assert graph.metapaths == kept
    assert set(graph.provenance.left_out_metapaths) == {BY_C, BY_D, BY_E} - set(kept)
    if not kept:
        assert re.match(r"no default .*: .*\(4 inst", why_none(graph))


def test_what_only_leads_back_is_left_out_if_another_is_there() -> None:
    graph = with_defaults(graph_of(c=C, e=E), [BY_E, BY_C])
    assert graph.metapaths == [BY_C]
    assert graph.provenance.left_out_metapaths == {
        BY_E: "it leads from every a back to the same a only; linear model and trees aggregate its "
        "rows"
    }


@pytest.mark.parametrize(("limit", "kept"), [(3, [BY_E]), (2, [])])
def test_what_only_leads_back_is_kept_alone_if_it_is_small(
    limit: int, kept: list[str], monkeypatch
) -> None:
    monkeypatch.setattr(defaults, "BACK_LIMIT", limit)
    graph = with_defaults(graph_of(e=E), [BY_E])
    assert graph.metapaths == kept
    assert kept or "aggregate its rows" in why_none(graph)


def test_with_many_roots_those_that_join_most_stay(monkeypatch) -> None:
    monkeypatch.setattr(defaults, "ROOTS", 8)  # two metapaths of four roots
    two = [(0, 0), (1, 0), (2, 1), (3, 1)]  # by which all four have several instances
    graph = with_defaults(graph_of(c=C, d=D, e=two), [BY_C, BY_D, BY_E])
    assert graph.metapaths == [BY_D, BY_E]
    assert graph.provenance.left_out_metapaths == {
        BY_C: "there is time for 2, and others join as many nodes or more"
    }
    monkeypatch.setattr(defaults, "ROOTS", 3)
    assert with_defaults(graph_of(c=C, d=D, e=two), [BY_C, BY_D, BY_E]).metapaths == [BY_E]
    stored = with_defaults(graph_of(c=C, d=D, e=two), [BY_C, BY_D, BY_E], stored=True)
    assert stored.metapaths == [BY_C, BY_D, BY_E]


def test_an_empty_metapath_is_left_for_training_to_refuse() -> None:
    graph = with_defaults(graph_of(c=C, d=[], e=E), [BY_D, BY_E, BY_C])
    assert graph.metapaths == [BY_D, BY_C]
    assert with_defaults(graph_of(d=[], e=E), [BY_D, BY_E]).metapaths == [BY_D, BY_E]


REVERSE = r"\(add the reverse of \('{}'\), see PyG's ToUndirected\)"


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        (["c", "rev_c"], "no relation starts or ends at a$"),
        (["rev_c"], "no relation leads from b back to a " + REVERSE.format("a', 'c', 'b")),
        (["c"], "no relation starts at a " + REVERSE.format("b', 'rev_c', 'a")),
    ],
)
def test_the_relation_that_is_missing_is_named(left_out: list[str], why: str) -> None:
    graph = graph_of(c=C)
    graph = replace(graph, links={e: x for e, x in graph.links.items() if e[1] not in left_out})
    assert re.match(why, why_none(there_and_back(graph)))
