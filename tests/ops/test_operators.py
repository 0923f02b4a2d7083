"""The operators as PyTorch sees them: its own checks, torch.compile, autocast."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from graphs import KINDS, random_arguments, random_chain
from hanme.errors import HanmeError
from hanme.graph.chain import Chain
from hanme.nn import HANME, HANMEConv
from hanme.nn.batch import Batch
from hanme.ops import (
    BACKENDS,
    LinkProduct,
    PairSigmoid,
    head_dots,
    metapath_attention,
    tanh_scores,
)


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_attends_the_same_when_compiled(kind: str) -> None:
    chain = random_chain(3, seed=3)
    *arguments, leaves = random_arguments(chain, kind, heads=8)
    results = []
    for compiled in (False, True):
        run = torch.compile(attend, backend="aot_eager") if compiled else attend
        torch.manual_seed(3)
        z = run(chain, arguments)
        results.append([z, *torch.autograd.grad(z.square().sum(), leaves, materialize_grads=True)])
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y)


def attend(chain: Chain, arguments: list) -> Tensor:
    return metapath_attention(chain, *arguments, dropout=0.5)


def films() -> HeteroData:
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    for node_type, size in (("movie", 40), ("actor", 30), ("director", 10)):
        data[node_type].x = torch.randn(size, 12, generator=generator)
    for other in ("actor", "director"):
        size = data[other].num_nodes
        links = torch.stack([torch.randint(n, (90,), generator=generator) for n in (40, size)])
        data["movie", "to", other].edge_index = links
        data[other, "of", "movie"].edge_index = links.flip(0).contiguous()
    return data


def made(data: HeteroData, kind: str, encoder: str) -> nn.Module:
    """A layer or a model, its weights drawn."""
    torch.manual_seed(1)
    metapaths = ["movie-actor-movie", "movie-director-movie"]
    options = {"heads": 8, "encoder": encoder, "dropout": 0.5}
    if kind == "layer":
        part: nn.Module = HANMEConv(-1, 32, data.metadata(), metapaths, **options)
    else:
        part = HANME(data.metadata(), "movie", metapaths, 3, hidden_channels=32, **options)
    with torch.no_grad():
        part(*arguments(part, data))
    return part


def arguments(part: nn.Module, data: HeteroData) -> tuple[Any, ...]:
    given = data.x_dict, data.edge_index_dict
    return given if isinstance(part, HANMEConv) else (Batch(*given),)


def step(run: Callable, part: nn.Module, data: HeteroData) -> list[Tensor]:
    """What comes out, and the gradients."""
    torch.manual_seed(5)  # of the dropout
    part.zero_grad()
    found = run(*arguments(part, data))
    out = found["movie"] if isinstance(found, dict) else found
    out.float().square().mean().backward()
    return [out.detach().float(), *(p.grad for p in part.parameters() if p.grad is not None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "encoder"), [("model", "multihop"), ("model", "direct"), ("layer", "multihop")]
)
def test_learns_the_same_when_compiled(kind: str, encoder: str) -> None:
    data = films()
    part = made(data, kind, encoder)
    plain = step(part, part, data)
    compiled = step(torch.compile(part, backend="aot_eager"), part, data)
    for x, y in zip(plain, compiled, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("encoder", ["multihop", "direct", "end", "rotate"])
@pytest.mark.parametrize("kind", ["layer", "model"])
def test_learns_nearly_the_same_under_autocast(kind: str, encoder: str) -> None:
    data = films()
    part = made(data, kind, encoder)
    wide = step(part, part, data)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = step(part, part, data)
    for x, y in zip(wide, narrow, strict=True):
        assert torch.linalg.vector_norm(x - y) < 0.1 * torch.linalg.vector_norm(x) + 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_is_in_float32_under_autocast(backend: str, kind: str) -> None:
    chain = random_chain(2, seed=3)
    values, c, root_score, attention, _ = random_arguments(chain, kind)
    narrow = [v.bfloat16() for v in values]
    wide = [v.float() for v in narrow]
    if isinstance(c, LinkProduct):
        c = LinkProduct(c.root.float(), tuple(w.float() for w in c.links))
    elif isinstance(c, PairSigmoid):
        c = PairSigmoid(c.query.float(), tuple(k.float() for k in c.keys))
    rest = (c, root_score.float(), attention.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = metapath_attention(chain, narrow, *rest, backend=backend)
    assert z.dtype == torch.float32
    torch.testing.assert_close(z, metapath_attention(chain, wide, *rest, backend=backend))


@pytest.mark.parametrize("heads", [8, 3])
def test_narrow_features_have_wide_scores_under_autocast(heads: int) -> None:
    h = torch.randn(5, heads, 4).bfloat16()
    weight, v, a = torch.randn(2, heads, 4, 6), torch.randn(2, heads, 6), torch.randn(heads, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        dots, tanh = head_dots(h, a), tanh_scores(h, weight, v)
    torch.testing.assert_close(dots, head_dots(h.float(), a))
    wide = tanh_scores(h.float(), weight, v)
    torch.testing.assert_close(tanh.float(), wide, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_of_streaming_are_refused(kind: str) -> None:
    chain = random_chain(2, seed=3)
    *arguments, leaves = random_arguments(chain, kind)
    z = metapath_attention(chain, *arguments, backend="streaming")
    with pytest.raises(HanmeError, match=r"create_graph.*'chunked'"):
        torch.autograd.grad(z.square().sum(), leaves[0], create_graph=True)


def test_second_derivatives_of_scores() -> None:
    generator = torch.Generator().manual_seed(1)
    h, weight, v, a = (
        torch.randn(shape, generator=generator, dtype=torch.double).requires_grad_()
        for shape in ((3, 8, 2), (2, 8, 2, 3), (2, 8, 3), (8, 2))
    )
    assert torch.autograd.gradgradcheck(tanh_scores, (h, weight, v), fast_mode=True)
    assert torch.autograd.gradgradcheck(head_dots, (h, a), fast_mode=True)
    fixed = weight.detach()  # an input without gradients
    assert torch.autograd.gradgradcheck(lambda h: tanh_scores(h, fixed, v), h, fast_mode=True)
