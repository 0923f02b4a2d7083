"""The fast implementation computes what examples/hanme_from_scratch.py writes out."""

import ast
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from graphs import random_chain
from hanme.data import planted
from hanme.graph.chain import Chain
from hanme.nn import HAN, HANME, Batch
from hanme.nn.encoders import Direct, Mean, Multihop
from hanme.ops import Problem, eager
from hanme.training.schedule import LTS

SCRIPT = Path(__file__).parents[1] / "examples" / "hanme_from_scratch.py"
page = SimpleNamespace(**runpy.run_path(str(SCRIPT), run_name="page"))
HEADS, CHANNELS = 4, 8
METAPATHS = [("movie", "director", "movie"), ("movie", "actor", "movie", "keyword", "movie")]
ENCODERS = {
    "multihop": (Multihop, page.Multihop),
    "direct": (Direct, page.Direct),
    "mean": (Mean, lambda heads, channels: page.mean),
}


def test_it_is_one_page_of_plain_pytorch() -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 250
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if node.module and node.module.startswith("hanme")]
    assert [(node.module, [name.name for name in node.names]) for node in ours] == [
        ("hanme.data", ["planted"])
    ]


def links_of(chain: Chain) -> dict[tuple[str, str], Tensor]:
    types = chain.metapath.node_types
    return {
        (types[hop], types[hop + 1]): torch.stack([chain.sources(hop), indices])
        for hop, indices in enumerate(chain.indices)
    }


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_instances(hops: int) -> None:
    chain = random_chain(hops, seed=hops, size=5)
    listed = page.list_instances(chain.metapath.node_types, links_of(chain))
    assert len(listed) > 0
    assert sorted(listed.tolist()) == sorted(chain.instances().nodes.tolist())


@pytest.mark.parametrize("hops", [1, 2, 4])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name: str, hops: int) -> None:
    chain = random_chain(hops, seed=10 + hops, size=5)
    types = chain.metapath.node_types
    fast, slow = (make(HEADS, CHANNELS) for make in ENCODERS[name])
    if name != "mean":
        slow.load_state_dict(fast.state_dict())
        fast, slow = fast.double(), slow.double()
    h = {
        t: torch.randn(n, HEADS, CHANNELS, dtype=torch.double)
        for t, n in zip(types, chain.sizes, strict=True)
    }
    terms = fast(h, [chain])[0]
    zeros = torch.zeros(chain.sizes[0], HEADS, dtype=torch.double)
    a = torch.zeros(HEADS, CHANNELS, dtype=torch.double)
    every, instances = torch.arange(chain.sizes[0]), chain.instances()
    problem = Problem(chain, terms.values, terms.coefficients, zeros, a, every, 0.2, 0.0, 0)
    encoded, nodes = eager.encode(problem, instances)[0], instances.nodes
    along = torch.stack([h[t][nodes[:, i]] for i, t in enumerate(types)], 1)
    torch.testing.assert_close(encoded, slow(along), atol=1e-6, rtol=0)
    if name == "multihop":  # Theorem 1
        torch.testing.assert_close(slow.diffusion(along), slow(along), atol=1e-6, rtol=0)


def copy_weights(fast: HANME, slow: torch.nn.Module) -> None:
    """Give the package's model the weights of the page's."""
    state = {f"fusion.k_lin.{k}": v for k, v in slow.W.state_dict().items()}
    state |= {f"head.{k}": v for k, v in slow.head.state_dict().items()}
    state["fusion.q"] = slow.q
    for node_type, projection in slow.M.items():
        for key, value in projection.state_dict().items():
            state[f"channels.0.proj.{node_type}.{key}"] = value
    for i, a in enumerate(slow.a):
        state[f"channels.0.att_root.{i}"] = a[None, :, :CHANNELS]
        state[f"channels.0.att_instance.{i}"] = a[None, :, CHANNELS:]
    if isinstance(slow.encoder, torch.nn.Module):
        state |= {f"channels.0.encoder.{k}": v for k, v in slow.encoder.state_dict().items()}
    fast.load_state_dict(state)


@pytest.mark.parametrize("backend", ["streaming", "chunked", "eager"])
@pytest.mark.parametrize("name", [*ENCODERS, "end"])
def test_the_forward_pass(name: str, backend: str) -> None:
    graph = planted(movies=60)
    x = {t: nodes.x.to_dense().double() for t, nodes in graph.nodes.items()}
    links = {(source, target): ends for (source, _, target), ends in graph.links.items()}
    instances = [page.list_instances(metapath, links) for metapath in METAPATHS]
    torch.manual_seed(0)
    encoder = ENCODERS[name][1](HEADS, CHANNELS) if name != "end" else page.end
    metapaths = METAPATHS
    if name == "end":  # HAN counts each distinct end once
        instances = [torch.unique(p[:, [0, -1]], dim=0) for p in instances]
        metapaths = [("movie", "movie")] * 2
    types = {t for metapath in metapaths for t in metapath}
    sizes = {t: x[t].size(1) for t in sorted(types)}
    slow = page.HANME(sizes, metapaths, len(graph.labels), encoder, HEADS, CHANNELS)
    slow = slow.double().eval()
    model, options = (HAN, {}) if name == "end" else (HANME, {"encoder": name})
    fast = model(
        graph.metadata(),
        "movie",
        ["-".join(metapath) for metapath in METAPATHS],
        len(graph.labels),
        hidden_channels=HEADS * CHANNELS,
        heads=HEADS,
        backend=backend,
        in_channels={t: features.size(1) for t, features in x.items()},
        **options,
    )
    fast = fast.double().eval()
    copy_weights(fast, slow)
    with torch.no_grad():
        expected = slow(x, instances)
        torch.testing.assert_close(fast(Batch(x, graph.links)), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("epoch", [1, 17, 49, 50, 80])
def test_lts(epoch: int) -> None:
    losses = torch.rand(123, generator=torch.Generator().manual_seed(epoch))
    lts = LTS(pace="linear", start=0.1, until=50)
    assert page.easiest(losses, epoch).tolist() == lts.easiest(losses, epoch).tolist()


def test_it_learns() -> None:
    torch.manual_seed(0)
    assert page.train(page.mean, epochs=25)[0] > 50  # 74, and 44 for all genres at once
