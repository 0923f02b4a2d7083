"""MAGNN with RotatE against its paper, an instance at a time, in complex numbers."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets import planted
from hanme.errors import HanmeError
from hanme.nn import MAGNN

METAPATHS = ["movie-director-movie", "movie-actor-movie-director"]


def walks(data: HeteroData, types: list[str], root: int) -> list[list[int]]:
    found = [[root]]
    for a, b in pairwise(types):
        links = data[a, "to", b].edge_index.t().tolist()
        found = [[*walk, w] for walk in found for u, w in links if u == walk[-1]]
    return found


def numbers(h: Tensor) -> Tensor:
    """A vector's halves as real and imaginary parts."""
    return torch.complex(*h.chunk(2, -1))


def test_rotate_is_the_paper_s_formula() -> None:
    data = planted(movies=14)
    model = MAGNN(data.metadata(), "movie", METAPATHS, 5, hidden_channels=8, heads=2).eval()
    with torch.no_grad():
        found = model(data)
    conv = model.conv
    h = {t: lin(data[t].x.to_dense()).view(-1, 2, 4) for t, lin in conv.proj.items()}
    angles = conv.encoder.angle
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
                for walk in walks(data, types, root):
                    # o_0 = h of the far end; o_i = h_i + o_{i-1} ⊙ r_i, towards the root.
                    o = numbers(h[types[-1]][walk[-1], k])
                    for i in reversed(range(len(walk) - 1)):
                        o = numbers(h[types[i]][walk[i], k]) + o * r[types[i + 1], types[i]][k]
                    e = torch.cat([o.real, o.imag]) / len(walk)
                    a = torch.cat([conv.att_root[m][0, k], conv.att_instance[m][0, k]])
                    score = a @ torch.cat([h["movie"][root, k], e])
                    scores.append(F.leaky_relu(score, 0.01))
                    encodings.append(e)
                if scores:
                    weight = torch.softmax(torch.stack(scores), 0)
                    z[root, k] = weight @ torch.stack(encodings)
        zs.append(F.elu(z).flatten(1))
    q, lin = conv.semantic.q[0], conv.semantic.k_lin
    beta = torch.softmax(torch.stack([(torch.tanh(lin(z)) @ q).mean() for z in zs]), 0)
    expected = model.lin(sum(b * z for b, z in zip(beta, zs, strict=True)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_features_are_dropped_in_training_only() -> None:
    data = planted(movies=14)
    model = MAGNN(data.metadata(), "movie", METAPATHS[:1], 5, hidden_channels=8, heads=2, dropout=0)
    assert torch.equal(model.eval()(data), model(data))
    assert not torch.equal(model.train()(data), model(data))


def test_an_encoder_that_is_not_magnn_s() -> None:
    data = planted(movies=14)
    with pytest.raises(HanmeError, match="mean, linear, rotate, but got 'direct'"):
        MAGNN(data.metadata(), "movie", METAPATHS[:1], 5, encoder="direct")
