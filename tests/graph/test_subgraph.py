"""Subgraphs give the same logits as the whole graph."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.nn import MODELS
from hanme.nn.batch import Batch
from hanme.nn.model import Model, batch_of

PATHS = ["movie-actor-movie", "movie-director-movie"]


class Stored(Graph):
    stored = True


def a_graph(seed: int = 0) -> Graph:
    made = planted(seed=seed, movies=60).with_features("given")
    return Stored(
        **{k: getattr(made, k) for k in ("nodes", "links", "target", "y", "labels")},
        split=made.split,
    )


def a_model(name: str, graph: Graph) -> Model:
    options = {
        "hanme": {"metapaths": PATHS, "hidden_channels": 8, "heads": 2},
        "han": {"metapaths": PATHS, "hidden_channels": 8, "heads": 2},
    }[name]
    torch.manual_seed(0)
    model = MODELS[name](
        graph.metadata(), target=graph.target, out_channels=len(graph.labels), **options
    )
    model.eval()
    with torch.no_grad():
        model(Batch.of(graph))
    return model


@pytest.mark.parametrize("name", ["hanme", "han"])
def test_a_model_says_the_same_of_roots_on_what_they_touch(name: str) -> None:
    graph = a_graph()
    model = a_model(name, graph)
    roots = torch.tensor([7, 3, 50, 3])
    with torch.no_grad():
        want = model(Batch.of(graph, roots))
        got = model(batch_of(model, graph, roots))
    assert torch.allclose(got, want, atol=1e-5)


def test_dropout_is_drawn_by_the_numbers_of_the_whole_graph() -> None:
    graph = a_graph()
    model = MODELS["hanme"](
        graph.metadata(),
        target="movie",
        out_channels=len(graph.labels),
        metapaths=PATHS,
        hidden_channels=8,
        heads=2,
        dropout=0.5,
        feature_dropout=0.5,
    )
    model(Batch.of(graph))
    vectors = []
    for roots in ([41, 8], [41, 8, 3, 50]):  # β of semantic attention depends on the roots
        torch.manual_seed(3)
        batch = batch_of(model, graph, torch.tensor(roots))
        vectors.append(torch.stack(model.channels[0](batch))[:, :2])
    assert torch.allclose(*vectors, atol=1e-6)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 99), data=st.data())
def test_a_subgraph_holds_all_links_of_the_nodes_that_walks_leave(
    seed: int, data: st.DataObject
) -> None:
    graph = a_graph(seed)
    roots = torch.tensor(data.draw(st.lists(st.integers(0, 59), max_size=4)), dtype=torch.long)
    walk = (("movie", "to", "actor"), ("actor", "to", "movie"))
    walk = tuple(next(e for e in graph.edge_types if (e[0], e[2]) == (s, t)) for s, _, t in walk)
    part = graph.subgraph(roots, [walk])
    ids = {kind: numbers.tolist() for kind, numbers in part.original_ids.items()}
    assert [ids["movie"][i] for i in part.roots.tolist()] == roots.tolist()
    reached = set(roots.tolist())
    for step in walk:
        want = sorted((s, t) for s, t in graph.links[step].t().tolist() if s in reached)
        got = [(ids[step[0]][s], ids[step[2]][t]) for s, t in part.links[step].t().tolist()]
        assert sorted(got) == want
        reached = {t for _, t in want}
    for kind, nodes in part.nodes.items():
        x = graph.nodes[kind].x
        assert nodes.x is not None
        assert x is not None
        assert torch.equal(nodes.x.to_dense(), x.to_dense()[part.original_ids[kind]])
        mine = [nodes.identity(i) for i in range(nodes.num_nodes)]
        assert mine == [graph.nodes[kind].identity(i) for i in ids[kind]]
    assert torch.equal(part.y, graph.y[part.original_ids["movie"]])


def test_roots_outside_the_graph_are_refused() -> None:
    with pytest.raises(HanmeError, match="from 0 to 59"):
        a_graph().subgraph(torch.tensor([60]), [])
