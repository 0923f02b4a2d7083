"""Gates, learned γ and uniform attention, against plain loops in NumPy over listed instances."""

import math

import numpy as np
import pytest
import torch

from graphs import random_chain
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph.chain import Chain
from hanme.nn import HANME, Batch
from hanme.nn.channels import MetapathChannels, Task
from hanme.nn.encoders import Multihop
from hanme.ops import BACKENDS
from hanme.training.batches import logits_of

GATES = ("sigmoid", "relu", "tanh", "softmax")
HEADS, CHANNELS = 2, 3
LONG = ["movie-director-movie", "movie-actor-movie-keyword-movie"]


def channels_of(chain: Chain, **options: object) -> tuple[MetapathChannels, Batch]:
    """Channels for one random metapath with both γ and slope off their defaults, and features."""
    torch.manual_seed(2)
    types, steps = chain.metapath.node_types, chain.metapath.steps
    task = Task((list(types), list(steps)), types[0], 1, 4)
    own = {"heads": HEADS, "gamma": 0.3, "negative_slope": 0.05, "activation": "elu"}
    made = MetapathChannels(task, HEADS * CHANNELS, [chain.metapath], **own, **options).double()
    x = {t: torch.randn(n, 4).double() for t, n in zip(types, chain.sizes, strict=True)}
    links = {
        step: torch.stack([chain.sources(hop), chain.indices[hop]])
        for hop, step in enumerate(steps)
    }
    return made, Batch(x, links)


def leaky(score: float) -> float:
    return score if score > 0 else 0.05 * score


def gated(gate: str, score: float, siblings: list[float]) -> float:
    """The weight of a link, given the scores of all links of its node, its own among them."""
    match gate:
        case "sigmoid":
            return 1 / (1 + math.exp(-leaky(score)))
        case "relu":
            return max(0.0, score)
        case "tanh":
            return math.tanh(leaky(score))
        case _:
            return math.exp(leaky(score)) / sum(math.exp(leaky(other)) for other in siblings)


def plain_loops(made: MetapathChannels, batch: Batch, chain: Chain, gate: str) -> np.ndarray:
    """z of every root, one instance, head and position at a time."""
    weights = {name: value.numpy() for name, value in made.state_dict().items()}
    listed, types = chain.instances(), chain.metapath.node_types
    nodes, links = listed.nodes.tolist(), listed.links.tolist()
    logit = weights.get("encoder.gamma_logit")
    gamma = 0.3 if logit is None else 1 / (1 + math.exp(-logit[0]))
    z = np.zeros((chain.sizes[0], HEADS, CHANNELS))
    for head in range(HEADS):
        part = slice(head * CHANNELS, (head + 1) * CHANNELS)
        h = {
            t: batch.x_dict[t].numpy() @ weights[f"proj.{t}.weight"][part].T
            + weights[f"proj.{t}.bias"][part]
            for t in types
        }
        v_a = weights["encoder.v_a"][head]

        def score(u: np.ndarray, w: np.ndarray, head: int = head, v_a: np.ndarray = v_a) -> float:
            start, end = u @ weights["encoder.W_h"][head], w @ weights["encoder.W_t"][head]
            return float(v_a @ np.tanh(np.concatenate([start, end])))

        scores: list[dict[int, dict[int, float]]] = [{} for _ in types[1:]]  # by node, by link
        for walk, walked in zip(nodes, links, strict=True):
            for hop, link in enumerate(walked):
                u, w = h[types[hop]][walk[hop]], h[types[hop + 1]][walk[hop + 1]]
                scores[hop].setdefault(walk[hop], {})[link] = score(u, w)
        encoded: dict[int, list[tuple[float, np.ndarray]]] = {}
        for walk, walked in zip(nodes, links, strict=True):
            root = h[types[0]][walk[0]]
            own = score(root, root)
            e, c = gamma * gated(gate, own, [own]) * root, gamma
            for hop, link in enumerate(walked):
                siblings = scores[hop][walk[hop]]
                c *= (1 - gamma) * gated(gate, siblings[link], list(siblings.values()))
                e = e + c * h[types[hop + 1]][walk[hop + 1]]
            exponent = 0.0
            if "att_root.0" in weights:
                exponent = leaky(
                    weights["att_root.0"][0, head] @ root + weights["att_instance.0"][0, head] @ e
                )
            encoded.setdefault(walk[0], []).append((math.exp(exponent), e))
        for node, pairs in encoded.items():
            total = sum(weight for weight, _ in pairs)
            z[node, head] = sum(weight / total * e for weight, e in pairs)
    return np.where(z > 0, z, np.expm1(z)).reshape(chain.sizes[0], -1)


@pytest.mark.parametrize("hops", [1, 2, 4])
@pytest.mark.parametrize("attention", ["learned", "uniform"])
@pytest.mark.parametrize("learn_gamma", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_channels_equal_plain_loops(
    gate: str, learn_gamma: bool, attention: str, hops: int
) -> None:
    chain = random_chain(hops, seed=50 + hops, size=5)
    options = {"gate": gate, "learn_gamma": learn_gamma, "attention": attention}
    made, batch = channels_of(chain, **options)
    if learn_gamma:
        with torch.no_grad():
            made.encoder.gamma_logit += 0.7
    expected = torch.from_numpy(plain_loops(made, batch, chain, gate))
    assert expected.any()
    for backend in BACKENDS:
        made.backend = backend
        with torch.no_grad():
            torch.testing.assert_close(made(batch)[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("attention", ["learned", "uniform"])
@pytest.mark.parametrize("gate", GATES)
def test_gradcheck(gate: str, attention: str) -> None:
    chain = random_chain(3, seed=53, size=4)
    made, batch = channels_of(chain, gate=gate, learn_gamma=True, attention=attention)
    names, values = zip(*made.named_parameters(), strict=True)
    assert "encoder.gamma_logit" in names
    assert ("att_root.0" in names) == (attention == "learned")

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        state = dict(zip(names, tensors, strict=True))
        return torch.func.functional_call(made, state, (batch,))[0]

    assert torch.autograd.gradcheck(run, values, fast_mode=True)


@pytest.mark.parametrize("gate", GATES)
def test_batches_of_roots_give_the_logits_of_the_whole_graph(gate: str) -> None:
    graph = planted(movies=90, genres=3)
    torch.manual_seed(0)
    sizes = {"hidden_channels": 16, "heads": 2, "in_channels": graph.widths}
    model = HANME(graph.metadata(), "movie", LONG, 3, gate=gate, **sizes).eval()
    with torch.no_grad():
        model(Batch.of(graph))
    model.fusion._beta = lambda z: torch.linspace(0, 1, len(z))  # a mean over the batch
    whole = logits_of(model, graph)
    for size in (1, 7):
        found = logits_of(model, graph, batch_size=size)
        torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-5)


def test_a_learned_gamma_starts_from_gamma_for_each_metapath() -> None:
    graph = planted(movies=60)
    model = HANME(graph.metadata(), "movie", LONG, 3, learn_gamma=True, gamma=0.4)
    start = model.channels[0].encoder.gamma_logit.sigmoid()
    torch.testing.assert_close(start, torch.full((2,), 0.4))


def test_the_slope_of_the_channels_reaches_encoders_that_have_one() -> None:
    graph = planted(movies=60)
    for encoder, options in (("multihop", {}), (Multihop, {"gamma": 0.3})):
        options = {"encoder": encoder, "negative_slope": 0.05, **options}
        model = HANME(graph.metadata(), "movie", LONG, 3, **options)
        assert model.channels[0].encoder.negative_slope == 0.05
    HANME(graph.metadata(), "movie", LONG, 3, encoder="mean", negative_slope=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"gate": "step"}, "gate"), ({"attention": "flat"}, "attention")],
)
def test_mistakes_are_named(options: dict, message: str) -> None:
    with pytest.raises(HanmeError, match=message):
        HANME(planted(movies=60).metadata(), "movie", LONG, 3, **options)
