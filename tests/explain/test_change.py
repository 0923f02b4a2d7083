"""What if links were others: the same as a forward on the whole graph with other links."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from hanme.data import planted
from hanme.explain import Explainer
from hanme.explain.change import Link, WhatIf
from hanme.graph import Graph
from hanme.graph.metapath import Metapath
from hanme.linear import LinearModel, LinearSpec, Smoothing, parse_block
from hanme.linear.matrices import GraphMatrices
from hanme.linear.smoothing import SmoothingSpec
from hanme.nn import HANME
from hanme.nn.batch import Batch
from hanme.training import Network, Stacked, build_seeded

TO = {kind: ("movie", "to", kind) for kind in ("actor", "director")}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return planted(movies=80, genres=3)


@pytest.fixture(scope="module")
def linear(graph: Graph) -> LinearModel:
    blocks = ["features:plain", "movie-actor:ids:unit", "movie-actor-movie:features:unit"]
    spec = LinearSpec([parse_block(text, graph.metadata()) for text in blocks], [1.0] * 3, 1.0)
    return LinearModel.fit_each(graph, spec, [graph.split.train], GraphMatrices(graph))[0]


@pytest.fixture(scope="module")
def network(graph: Graph) -> HANME:
    made, _ = build_seeded(
        lambda: HANME(graph.metadata(), "movie", graph.metapaths, 3, hidden_channels=8, heads=2),
        graph,
        seed=1,
    )
    return made.eval()


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("smooth", [False, True])
def test_links_can_go_where_the_linear_model_reads_them_and_all_of_them(
    graph: Graph, linear: LinearModel, network: HANME, kept: int, smooth: bool
) -> None:
    base = linear
    if smooth:
        path = Metapath.parse("movie-director-movie", graph.metadata())
        spec = SmoothingSpec(
            paths=[str(path)], slopes=[2.0], slope=1.5, bias=[1, 2, 3], prior=[0.2, 0.3, 0.4]
        )
        base = Smoothing(linear, [path], spec)
    slopes = {"linear": 0.7, "network": 1.3}
    model = Stacked({"linear": base, "network": Network(network)}, slopes, torch.ones(3))
    opened, node = Explainer(model, graph).open, 3
    remove, links = [], dict(graph.links)
    for kind, e in TO.items():
        pairs = graph.links[e]
        gone = (pairs[0] == node) & (torch.arange(pairs.size(1)) >= kept * pairs.size(1) // 2)
        remove += [Link(e, node, end) for end in pairs[1, gone].tolist()]
        links[e], links[kind, "to", "movie"] = pairs[:, ~gone], pairs[:, ~gone].flip(0)
    logits, left = WhatIf(opened, graph).logits(node, remove=remove)
    changed = replace(graph, links=links)
    held = torch.tensor(opened.beta)
    network.fusion.forward = lambda z: torch.einsum("p,pnc->nc", held, torch.stack(list(z)))
    with torch.no_grad():
        deep = network(Batch.of(changed))[node]
    del network.fusion.forward
    frozen = base.frozen(graph)  # the predictions of other nodes are held
    expected = 0.7 * frozen.predict(changed)[node] + 1.3 * deep + 1
    torch.testing.assert_close(logits.float(), expected, rtol=1e-4, atol=1e-4)
    assert (left == 0) == (kept == 0)


@pytest.fixture
def threads_that_switch_often() -> Iterator[ThreadPoolExecutor]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(8) as pool:
        yield pool
    sys.setswitchinterval(before)


def test_several_threads_change_different_nodes(
    graph: Graph, linear: LinearModel, threads_that_switch_often: ThreadPoolExecutor
) -> None:
    what_if = WhatIf(Explainer(Stacked({"linear": linear}), graph).open, graph)
    first = {node: int(graph.adjacency(TO["actor"]).of_node(node)[0]) for node in range(60)}

    def without(node: int) -> torch.Tensor:
        return what_if.logits(node, remove=[Link(TO["actor"], node, first[node])])[0]

    expected = [without(node) for node in first]
    for _ in range(4):
        found = list(threads_that_switch_often.map(without, first))
        assert all(map(torch.equal, found, expected))
