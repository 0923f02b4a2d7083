"""MAGNN with RotatE against its paper, an instance at a time, in complex numbers."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hanme import Graph
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.nn import MAGNN
from hanme.nn.batch import Batch
from hanme.nn.model import batch_of

METAPATHS = ["movie-director-movie", "movie-actor-movie-director"]


def walks(graph: Graph, types: list[str], root: int) -> list[list[int]]:
    found = [[root]]
    for a, b in pairwise(types):
        links = graph.links[a, "to", b].t().tolist()
        found = [[*walk, w] for walk in found for u, w in links if u == walk[-1]]
    return found


def numbers(h: Tensor) -> Tensor:
    """A vector's halves as real and imaginary parts."""
    return torch.complex(*h.chunk(2, -1))


def test_rotate_is_the_paper_s_formula() -> None:
    graph = planted(movies=14)
    model = MAGNN(graph.metadata(), "movie", METAPATHS, 5, hidden_channels=8, heads=2).eval()
    with torch.no_grad():
        found = model(Batch.of(graph))
    along = model.channels[0]
    h = {t: lin(graph.x_dict[t].to_dense()).view(-1, 2, 4) for t, lin in along.proj.items()}
    angles = along.encoder.angle
    assert len(angles) == 2  # director and movie, movie and actor: the way back is the conjugate
    r = {
        ("movie", "director"): torch.polar(torch.ones_like(angles[0]), angles[0]),
        ("movie", "actor"): torch.polar(torch.ones_like(angles[1]), angles[1]),
    }
    r |= {(b, a): turn.conj() for (a, b), turn in r.items()}
    zs = []
    for m, text in enumerate(METAPATHS):
        types = text.split("-")
        z = torch.zeros(14, 2, 4)
        for root in range(14):
            for k in range(2):
                scores, encodings = [], []
                for walk in walks(graph, types, root):
                    # o_0 = h of the far end; o_i = h_i + o_{i-1} ⊙ r_i, towards the root.
                    o = numbers(h[types[-1]][walk[-1], k])
                    for i in reversed(range(len(walk) - 1)):
                        o = numbers(h[types[i]][walk[i], k]) + o * r[types[i + 1], types[i]][k]
                    e = torch.cat([o.real, o.imag]) / len(walk)
                    a = torch.cat([along.att_root[m][0, k], along.att_instance[m][0, k]])
                    score = a @ torch.cat([h["movie"][root, k], e])
                    scores.append(F.leaky_relu(score, 0.01))
                    encodings.append(e)
                if scores:
                    weight = torch.softmax(torch.stack(scores), 0)
                    z[root, k] = weight @ torch.stack(encodings)
        zs.append(F.elu(z).flatten(1))
    q, lin = model.fusion.q[0], model.fusion.k_lin
    beta = torch.softmax(torch.stack([(torch.tanh(lin(z)) @ q).mean() for z in zs]), 0)
    expected = model.head(sum(b * z for b, z in zip(beta, zs, strict=True)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_features_are_dropped_in_training_only() -> None:
    graph = planted(movies=14)
    model = MAGNN(
        graph.metadata(), "movie", METAPATHS[:1], 5, hidden_channels=8, heads=2, dropout=0
    )
    batch = Batch.of(graph)
    assert torch.equal(model.eval()(batch), model(batch))
    assert not torch.equal(model.train()(batch), model(batch))


def test_an_encoder_that_is_not_magnn_s() -> None:
    graph = planted(movies=14)
    with pytest.raises(HanmeError, match="mean, linear, rotate, but got 'direct'"):
        MAGNN(graph.metadata(), "movie", METAPATHS[:1], 5, encoder="direct")


def test_a_batch_without_nodes_of_a_type_is_trained() -> None:
    graph = planted(movies=14)
    graph.links = {
        e: links[:, (links[e.index("movie") // 2] != 3)] for e, links in graph.links.items()
    }
    model = MAGNN(graph.metadata(), "movie", METAPATHS, 5, hidden_channels=8, heads=2)
    model(Batch.of(graph))
    batch = batch_of(model.train(), graph, torch.tensor([3]))
    assert batch.x_dict["actor"].size(0) == 0
    assert model(batch).isfinite().all()
