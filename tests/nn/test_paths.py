"""Encoders that are any function of the path, and features of links, against plain loops."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from hanme import Classifier
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.explain import Explainer
from hanme.explain.change import Link, WhatIf
from hanme.graph import Graph
from hanme.nn import HANME, Batch, HANMEConv
from hanme.nn.encoders import Encoder, Multihop, PathEncoder
from hanme.ops import chunked
from hanme.training import build_seeded
from nn.test_conv import small_graph

TO, BACK = ("movie", "to", "actor"), ("actor", "to", "movie")


class Recurrent(PathEncoder):
    """The last state of a GRU that walks from the end of an instance to its root."""

    def __init__(self, heads: int, channels: int, metapaths=(), *, links: int = 0) -> None:
        super().__init__(heads, channels, metapaths)
        self.gru = nn.GRU(channels + links, channels, batch_first=True)

    def encode(self, values: Tensor, links, metapath) -> Tensor:
        if links:  # the features of the link towards the root
            zeros = links[0].new_zeros(len(values), 1, links[0].size(1))
            along = torch.cat([zeros, torch.stack(list(links), 1)], 1)
            along = along[:, :, None].expand(-1, -1, self.heads, -1)
            values = torch.cat([values, along], -1)
        states = values.flip(1).transpose(1, 2).flatten(0, 1)  # [P K, L + 1, D]
        return self.gru(states)[1][0].view(len(values), self.heads, self.channels)


class Attentive(PathEncoder):
    """A transformer layer over the nodes of an instance; the token of the root is read."""

    def __init__(self, heads: int, channels: int, metapaths=()) -> None:
        super().__init__(heads, channels, metapaths)
        self.layer = nn.TransformerEncoderLayer(channels, 1, 2 * channels, 0.0, batch_first=True)

    def encode(self, values: Tensor, links, metapath) -> Tensor:
        tokens = values.transpose(1, 2).flatten(0, 1)
        return self.layer(tokens)[:, 0].view(len(values), self.heads, self.channels)


def network(graph: Graph, encoder: type[Encoder], *metapaths: str, **options: object) -> HANME:
    model, _ = build_seeded(
        lambda: HANME(
            graph.metadata(),
            "movie",
            metapaths or graph.metapaths,
            len(graph.labels),
            hidden_channels=8,
            heads=2,
            encoder=encoder,
            dropout=0.0,
            **options,
        ),
        graph,
        seed=1,
    )
    return model.eval()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return planted(movies=50, genres=3)


def plain_vectors(model: HANME, graph: Graph, number: int) -> list[Tensor]:
    """Return z of each metapath for one root, by a loop over its instances."""
    (part,) = model.parts
    vectors = []
    h = {
        t: part.proj[t](x.to_dense()).view(len(x), 2, 4)
        for t, x in graph.x_dict.items()
        if t in part.proj
    }
    for i, metapath in enumerate(part.metapaths):
        chain = graph.chain(metapath)
        types, scores, encodings = metapath.node_types, [], []
        for nodes in chain.instances(torch.tensor([number])).nodes:
            path = torch.stack([h[t][int(n)] for t, n in zip(types, nodes, strict=True)])
            encodings.append(part.encoder.encode(path[None], [], metapath)[0])
            score = (part.att_root[i][0] * path[0]).sum(-1)
            score = score + (part.att_instance[i][0] * encodings[-1]).sum(-1)
            scores.append(torch.where(score > 0, score, 0.2 * score))
        weight = torch.softmax(torch.stack(scores), 0)
        z = (weight[..., None] * torch.stack(encodings)).sum(0)
        vectors.append(z.relu().flatten())
    return vectors


@pytest.mark.parametrize("encoder", [Recurrent, Attentive])
@pytest.mark.parametrize("backend", ["auto", "eager"])
def test_a_path_encoder_equals_a_loop(graph: Graph, encoder: type, backend: str) -> None:
    model = network(graph, encoder, backend=backend)
    with torch.no_grad():
        vectors = model.parts[0](Batch.of(graph))
        for number in (0, 7):
            for z, expected in zip(vectors, plain_vectors(model, graph, number), strict=True):
                torch.testing.assert_close(z[number], expected)


def test_blocks_change_neither_values_nor_gradients(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for most in (1 << 22, 300):
        monkeypatch.setattr(chunked, "PATH_VALUES", most)
        model = network(graph, Recurrent).train()
        torch.manual_seed(0)  # of the dropout
        model.parts[0].dropout = 0.5
        model(Batch.of(graph)).square().sum().backward()
        results.append([p.grad for p in model.parameters()])
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y)


def test_some_roots_get_the_vectors_that_they_have_among_all(graph: Graph) -> None:
    model, roots = network(graph, Attentive), torch.tensor([9, 2, 9])
    with torch.no_grad():
        every = model.parts[0](Batch.of(graph))
        part = graph.subgraph(roots, model.walks())
        for z, some, alone in zip(
            every,
            model.parts[0](Batch.of(graph, roots)),
            model.parts[0](Batch.of(part, part.roots)),
            strict=True,
        ):
            torch.testing.assert_close(some, z[roots])
            torch.testing.assert_close(alone, z[roots])


def test_the_backend_streaming_is_refused(graph: Graph) -> None:
    model = network(graph, Recurrent)
    model.parts[0].backend = "streaming"
    with pytest.raises(HanmeError, match="backend chunked or eager for a PathFunction"):
        model(Batch.of(graph))


def test_a_wrong_shape_names_the_encoder(graph: Graph) -> None:
    class Wrong(Recurrent):
        def encode(self, values: Tensor, links, metapath) -> Tensor:
            return values[:, 0, 0]

    with pytest.raises(HanmeError, match=r"encoder Wrong: expected `encode` to return \[\d+, 2, 4"):
        network(graph, Wrong)(Batch.of(graph))


def test_path_encoders_run_in_bfloat16() -> None:
    data = small_graph()
    layer = HANMEConv(-1, 8, data.metadata(), ["m-a-m"], encoder=Recurrent, heads=2)
    wide = layer(data.x_dict, data.edge_index_dict)["m"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (layer(data.x_dict, data.edge_index_dict)["m"] - wide).abs().max() < 0.1
    narrow = {t: x.bfloat16() for t, x in data.x_dict.items()}
    out = layer.bfloat16()(narrow, data.edge_index_dict)["m"]
    assert out.dtype == torch.bfloat16
    assert (out.float() - wide).abs().max() < 0.1


@pytest.mark.parametrize("encoder", [Recurrent, Attentive])
def test_explanations_add_up_and_removals_are_those_of_a_changed_graph(
    graph: Graph, encoder: type
) -> None:
    model = network(graph, encoder)
    with torch.no_grad():
        logits = model(Batch.of(graph))
    explainer = Explainer(model, graph)
    found = explainer.explain(4)
    total = {name: found.base[name] for name in graph.labels}
    for reason in found.reasons:
        for name, value in reason.contributions.items():
            total[name] += value
    assert list(total.values()) == pytest.approx(logits[4].tolist(), abs=1e-5)
    for instance in found.details.instances:
        assert sum(instance.hops) == pytest.approx(1)
    pairs = graph.links[TO]
    end = int(pairs[1, (pairs[0] == 4).nonzero()[0]])
    without, _ = WhatIf(explainer.open, graph).logits(4, remove=[Link(TO, 4, end)])
    changed = without_link(graph, 4, end)
    held = torch.tensor(explainer.open.beta)
    model.fusion.forward = lambda z: torch.einsum("p,pnc->nc", held, torch.stack(list(z)))
    with torch.no_grad():
        expected = model(Batch.of(changed))[4]
    torch.testing.assert_close(without.float(), expected, rtol=1e-4, atol=1e-5)


def without_link(graph: Graph, movie: int, actor: int) -> Graph:
    kept = ~((graph.links[TO][0] == movie) & (graph.links[TO][1] == actor))
    links = dict(graph.links)
    links[TO], links[BACK] = graph.links[TO][:, kept], graph.links[TO][:, kept].flip(0)
    features = {}
    if graph.edge_attr:
        features = {TO: graph.edge_attr[TO][kept], BACK: graph.edge_attr[TO][kept]}
    return replace(graph, links=links, edge_attr=features)


@pytest.fixture(scope="module")
def featured(graph: Graph) -> Graph:
    """The graph with features of the links between movies and actors, the same both ways."""
    pairs, back = graph.links[TO], graph.links[BACK]
    x = torch.randn(pairs.size(1), 3, generator=torch.Generator().manual_seed(0))
    place = {pair: i for i, pair in enumerate(map(tuple, pairs.t().tolist()))}
    turned = [place[movie, actor] for actor, movie in back.t().tolist()]
    return replace(graph, edge_attr={TO: x, BACK: x[turned]})


def test_multihop_reads_link_features_as_in_the_formula(featured: Graph) -> None:
    edge_dim = dict.fromkeys((TO, BACK), 3)
    model = network(featured, Multihop, "movie-actor-movie", edge_dim=edge_dim)
    (part,) = model.parts
    encoder = part.encoder
    h = {
        t: part.proj[t](x.to_dense()).view(len(x), 2, 4)
        for t, x in featured.x_dict.items()
        if t in part.proj
    }
    of_link = {
        (e, *pair): x
        for e, rows in featured.edge_attr.items()
        for pair, x in zip(map(tuple, featured.links[e].t().tolist()), rows, strict=True)
    }

    def gate(u: Tensor, w: Tensor, head: int, added: Tensor | float) -> Tensor:
        both = torch.cat([u @ encoder.W_h[head], w @ encoder.W_t[head]])
        score = encoder.v_a[head] @ torch.tanh(both) + added
        return torch.sigmoid(torch.where(score > 0, score, 0.2 * score))

    with torch.no_grad():
        z = part(Batch.of(featured))[0].view(-1, 2, 4)
        for head in range(2):
            encodings, scores = [], []
            for m, a, n in featured.chain(part.metapaths[0]).instances(torch.tensor([5])).nodes:
                movie, actor, end = (
                    h["movie"][m, head],
                    h["actor"][a, head],
                    h["movie"][n, head],
                )
                added = [
                    of_link[TO, int(m), int(a)] @ encoder.att_link[0][:, head],
                    of_link[BACK, int(a), int(n)] @ encoder.att_link[1][:, head],
                ]
                first = gate(movie, actor, head, added[0])
                second = first * gate(actor, end, head, added[1])
                e = 0.4 * gate(movie, movie, head, 0.0) * movie
                e = e + 0.4 * 0.6 * first * actor + 0.4 * 0.36 * second * end
                encodings.append(e)
                score = part.att_root[0][0, head] @ movie + part.att_instance[0][0, head] @ e
                scores.append(torch.where(score > 0, score, 0.2 * score))
            weight = torch.softmax(torch.stack(scores), 0)
            expected = (weight[:, None] * torch.stack(encodings)).sum(0).relu()
            torch.testing.assert_close(z[5, head], expected)


@pytest.mark.parametrize("encoder", [Multihop, Recurrent])
def test_link_features_follow_their_links_into_subgraphs_and_changed_graphs(
    featured: Graph, encoder: type
) -> None:
    own = {"edge_dim": dict.fromkeys((TO, BACK), 3)} if encoder is Multihop else {"links": 3}
    model = network(featured, encoder, "movie-actor-movie", **own)
    roots = torch.tensor([9, 2])
    part = featured.subgraph(roots, model.walks())
    with torch.no_grad():
        every = model(Batch.of(featured))
        torch.testing.assert_close(model(Batch.of(featured, roots)), every[roots])
        torch.testing.assert_close(model(Batch.of(part, part.roots)), every[roots])
        plain = model(
            Batch.of(
                replace(
                    featured,
                    edge_attr={TO: 0 * featured.edge_attr[TO]}
                    | {BACK: 0 * featured.edge_attr[BACK]},
                )
            )
        )
    assert not torch.allclose(plain, every)
    explainer = Explainer(model, featured)
    assert explainer.explain(9).logits == pytest.approx(
        dict(zip(featured.labels, every[9].tolist(), strict=True)), abs=1e-5
    )
    pairs = featured.links[TO]
    end = int(pairs[1, (pairs[0] == 9).nonzero()[1]])
    without, _ = WhatIf(explainer.open, featured).logits(9, remove=[Link(TO, 9, end)])
    with torch.no_grad():
        expected = model(Batch.of(without_link(featured, 9, end)))[9]
    torch.testing.assert_close(without.float(), expected, rtol=1e-4, atol=1e-5)


def test_missing_and_misplaced_link_features_are_refused(featured: Graph) -> None:
    edge_dim = dict.fromkeys((TO, BACK), 3)
    model = network(featured, Multihop, edge_dim=edge_dim)
    with pytest.raises(HanmeError, match=r"expected edge_attr \[E, 3\], but got none"):
        model(Batch.of(replace(featured, edge_attr={})))
    with pytest.raises(HanmeError, match=r"expected edge_attr \[\d+, F\]"):
        model(Batch.of(replace(featured, edge_attr={TO: torch.zeros(1, 3)})))
    narrow = {e: x[:, 0] for e, x in featured.edge_attr.items()}
    with pytest.raises(HanmeError, match=r"expected edge_attr \[E, 3\], but got \[\d+, 1\]"):
        model(Batch.of(replace(featured, edge_attr=narrow)))


def labels_on_links() -> HeteroData:
    """Users and items whose label is what most of their links say; nodes say nothing."""
    generator = torch.Generator().manual_seed(0)
    data, users = HeteroData(), 120
    data["user"].x = torch.ones(users, 1)
    data["item"].x = torch.ones(30, 1)
    data["user"].y = torch.arange(users) % 2
    pairs = torch.stack(
        [torch.arange(users).repeat(4), torch.randint(30, (4 * users,), generator=generator)]
    )
    said = data["user"].y[pairs[0]].float() * 2 - 1
    data["user", "rates", "item"].edge_index = pairs
    data["user", "rates", "item"].edge_attr = said[:, None] + 0.1 * torch.randn(
        len(said), 1, generator=generator
    )
    data["item", "rated", "user"].edge_index = pairs.flip(0)
    return data


def test_a_classifier_learns_from_link_features(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_hetero(labels_on_links())
    options = {"hidden_channels": 8, "heads": 2}
    training = {"recipe": "paper", "epochs": 60, "lr": 0.02}
    scores = []
    for given in (graph, replace(graph, edge_attr={})):
        fitted = Classifier(metapaths=["user-item"], options=options, training=training).fit(given)
        scores.append(fitted.score())
    assert scores[0] > 0.9
    assert scores[1] < 0.7
