"""Encoders against the paper's formulas, one instance at a time, with dense matrices."""

import math

import pytest
import torch
from torch import Tensor

from graphs import random_chain
from hanme.errors import HanmeError
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.nn.encoders import Direct, Encoder, Linear, Mean, Multihop, RotatE, make_encoder
from hanme.ops import Problem, eager

HEADS, CHANNELS = 2, 3


def features(chain: Chain) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        t: torch.randn(n, HEADS, CHANNELS, generator=generator, dtype=torch.double)
        for t, n in zip(chain.metapath.node_types, chain.sizes, strict=True)
    }


def encode(encoder: Encoder, chain: Chain, h: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Every instance's nodes and its encoding, ``[P, K, D]``, through the operator's terms."""
    terms, instances = encoder(h, [chain])[0], chain.instances()
    zeros = torch.zeros(chain.sizes[0], HEADS, dtype=torch.double)
    a = torch.zeros(HEADS, CHANNELS, dtype=torch.double)
    every = torch.arange(chain.sizes[0])
    problem = Problem(chain, terms.values, terms.coefficients, zeros, a, every, 0.2, 0.0, 0)
    return instances.nodes, eager.encode(problem, instances)[0]


def rows(chain: Chain, h: dict[str, Tensor], nodes: Tensor, head: int) -> Tensor:
    """The features along an instance, ``[L + 1, D]``."""
    types = chain.metapath.node_types
    return torch.stack([h[t][int(n), head] for t, n in zip(types, nodes, strict=True)])


@pytest.mark.parametrize("hops", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("gamma", [0.4, 0.1])
def test_multihop_is_the_dense_diffusion_of_the_theorem(hops: int, gamma: float) -> None:
    chain = random_chain(hops, seed=20 + hops, size=4, density=0.5)
    encoder = Multihop(HEADS, CHANNELS, gamma=gamma).double()
    h = features(chain)
    nodes, encoded = encode(encoder, chain, h)
    assert len(nodes) > 0
    for p in range(0, len(nodes), max(1, len(nodes) // 20)):
        for head in range(HEADS):
            x = rows(chain, h, nodes[p], head)

            def a(u: Tensor, w: Tensor, head: int = head) -> Tensor:
                both = torch.cat([u @ encoder.W_h[head], w @ encoder.W_t[head]])
                score = encoder.v_a[head] @ torch.tanh(both)
                return torch.sigmoid(score if score > 0 else 0.2 * score)

            # A[i, i + 1] = a(v_i, v_i+1): the chain v0 <- v1 <- ... <- vL, a nilpotent matrix.
            matrix = torch.zeros(hops + 1, hops + 1, dtype=torch.double)
            for i in range(hops):
                matrix[i, i + 1] = a(x[i], x[i + 1])
            assert not torch.linalg.matrix_power(matrix, hops + 1).any()
            diffusion = sum(
                gamma * (1 - gamma) ** m * torch.linalg.matrix_power(matrix, m)
                for m in range(1, hops + 1)
            )
            expected = gamma * a(x[0], x[0]) * x[0] + diffusion[0] @ x
            torch.testing.assert_close(encoded[p, head], expected)


@pytest.mark.parametrize("values", ["projected", "transformed"])
@pytest.mark.parametrize("hops", [1, 2, 4])
def test_direct_is_the_formula(hops: int, values: str) -> None:
    chain = random_chain(hops, seed=30 + hops, size=4)
    encoder = Direct(HEADS, CHANNELS, values=values).double()
    h = features(chain)
    nodes, encoded = encode(encoder, chain, h)
    for p in range(0, len(nodes), max(1, len(nodes) // 20)):
        for head in range(HEADS):
            x = rows(chain, h, nodes[p], head)
            q, k = x[0] @ encoder.W_t[head], x @ encoder.W_h[head]
            if values == "transformed":
                k = torch.cat([q[None], k[1:]])
            alpha = torch.sigmoid(k @ q / math.sqrt(CHANNELS))
            expected = alpha @ (x if values == "projected" else k)
            torch.testing.assert_close(encoded[p, head], expected)


def test_mean_is_the_mean() -> None:
    chain = random_chain(3, seed=41, size=4)
    h = features(chain)
    nodes, encoded = encode(Mean(HEADS, CHANNELS), chain, h)
    for p in range(len(nodes)):
        for head in range(HEADS):
            torch.testing.assert_close(encoded[p, head], rows(chain, h, nodes[p], head).mean(0))


def test_linear_is_a_matrix_times_the_mean() -> None:
    chain = random_chain(3, seed=42, size=4)
    encoder, h = Linear(HEADS, CHANNELS, [chain.metapath]).double(), features(chain)
    nodes, encoded = encode(encoder, chain, h)
    for p in range(len(nodes)):
        for head in range(HEADS):
            expected = rows(chain, h, nodes[p], head).mean(0) @ encoder.W[0, head]
            torch.testing.assert_close(encoded[p, head], expected)


def test_linear_has_a_matrix_per_metapath() -> None:
    chain = random_chain(3, seed=42, size=4)
    encoder, h = Linear(HEADS, CHANNELS, [chain.metapath] * 2).double(), features(chain)
    first, second = encoder(h, [chain, chain])
    with torch.no_grad():
        encoder.W[1] = 0
    again, zero = encoder(h, [chain, chain])
    assert all(torch.equal(x, y) for x, y in zip(first.values, again.values, strict=True))
    assert all(x.any() and not y.any() for x, y in zip(second.values, zero.values, strict=True))


def test_rotate_turns_each_position_towards_the_root() -> None:
    metadata = (["m", "a"], [("m", "to", "a"), ("a", "to", "m"), ("m", "follows", "m")])
    metapath = Metapath.parse("m-a-m-m", metadata)
    edges = {step: torch.randint(0, 4, (2, 6)) for step in metadata[1]}
    chain = Chain.build(metapath, edges, {"m": 4, "a": 4})
    encoder = RotatE(HEADS, 4, [metapath]).double()
    assert len(encoder.angle) == 2  # a relation and its inverse share one
    h = {t: torch.randn(4, HEADS, 4, dtype=torch.double) for t in ("m", "a")}
    terms = encoder(h, [chain])[0]
    assert terms.coefficients.c == (0.25,) * 4
    to_actor, follows = (torch.exp(1j * angle) for angle in encoder.angle)
    back = to_actor.conj()
    turns = [torch.ones_like(follows), back, back * to_actor, back * to_actor * follows.conj()]
    for value, node_type, turn in zip(terms.values, ("m", "a", "m", "m"), turns, strict=True):
        z = torch.complex(h[node_type][..., :2], h[node_type][..., 2:]) * turn
        torch.testing.assert_close(value, torch.cat([z.real, z.imag], -1))


def test_rotate_needs_an_even_size() -> None:
    with pytest.raises(HanmeError, match="even"):
        RotatE(2, 3)


@pytest.mark.parametrize("gamma", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_gamma_outside_0_1_is_refused(gamma: float) -> None:
    with pytest.raises(HanmeError, match="gamma"):
        Multihop(1, 2, gamma=gamma)


def test_chosen_by_name_class_or_instance() -> None:
    mine = Multihop(2, 4, gamma=0.2)
    assert make_encoder(mine, 2, 4, [], {}) is mine
    assert isinstance(make_encoder("direct", 2, 4, [], {}), Direct)
    assert make_encoder(Multihop, 2, 4, [], {"gamma": 0.3}).gamma == 0.3
    with pytest.raises(HanmeError, match="multihop, direct, mean"):
        make_encoder("median", 2, 4, [], {})
    with pytest.raises(HanmeError, match="Mean has no option 'gamma'"):
        make_encoder("mean", 2, 4, [], {"gamma": 0.3})
    with pytest.raises(HanmeError, match="'projected' or 'transformed'"):
        make_encoder("direct", 2, 4, [], {"values": "raw"})
