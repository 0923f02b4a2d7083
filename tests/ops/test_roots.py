"""Some roots alone: the results of the whole graph, at the cost of what they touch."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graph.test_chain import asked, chain_of
from graphs import KINDS, random_arguments
from hanme.graph.chain import Chain, Restriction
from hanme.graph.metapath import Metapath
from hanme.ops import (
    BACKENDS,
    Constant,
    LinkProduct,
    PairSigmoid,
    Problem,
    metapath_attention,
)

WHERE = st.sampled_from(["roots given", "piece made beforehand"])


def on_piece(piece: Restriction, arguments: list) -> list:
    """The arguments of the operator on a piece, from those on the whole graph."""
    values, c, root_score, attention = arguments
    of = [piece.nodes[t] for t in piece.chain.metapath.node_types]
    if isinstance(c, LinkProduct):
        links = zip(c.links, piece.links, strict=True)
        c = LinkProduct(c.root[of[0]], tuple(w[ids] for w, ids in links))
    elif isinstance(c, PairSigmoid):
        c = PairSigmoid(c.query[of[0]], tuple(k[i] for k, i in zip(c.keys, of, strict=True)))
    return [[v[i] for v, i in zip(values, of, strict=True)], c, root_score[of[0]], attention]


@settings(max_examples=150, deadline=None)
@given(
    case=asked(),
    kind=st.sampled_from(KINDS),
    backend=st.sampled_from(sorted(BACKENDS)),
    dropout=st.sampled_from([0.0, 0.5]),
    where=WHERE,
    seed=st.integers(0, 10**6),
)
def test_equal_the_whole_graph_in_values_dropout_and_gradients(
    case, kind: str, backend: str, dropout: float, where: str, seed: int
) -> None:
    data, texts, roots = case
    chain = chain_of(data, texts[0])
    *arguments, leaves = random_arguments(chain, kind, seed=seed)
    options = {"dropout": dropout, "seed": seed, "backend": backend}
    whole = metapath_attention(chain, *arguments, **options)[roots]
    if where == "roots given":
        z = metapath_attention(chain, *arguments, roots=roots, **options)
    else:
        piece = chain.restrict(roots)
        part = on_piece(piece, arguments)
        z = metapath_attention(piece.chain, *part, **options)[piece.roots]
    torch.testing.assert_close(z, whole)
    direction = torch.linspace(-1, 1, z.numel(), dtype=torch.double).view_as(z)
    for x, y in zip(
        torch.autograd.grad((z * direction).sum(), leaves, materialize_grads=True),
        torch.autograd.grad((whole * direction).sum(), leaves, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(x, y)


def test_positions_that_share_their_values_still_do_on_a_piece() -> None:
    chain = big_chain(50)
    h, a = torch.randn(50, 8, 4), torch.randn(8, 4)
    other = torch.randn(50, 8, 4)
    problem = Problem(
        chain, (h, other, h), Constant((1.0,) * 3), h[..., 0], a, torch.arange(50), 0.2, 0.0, 0
    )
    part = problem.within(chain.restrict(torch.tensor([3, 1])))
    assert part.values[0] is part.values[2]
    assert part.values[0] is not part.values[1]


def big_chain(nodes: int) -> Chain:
    """m-a-m with three links from each node, to nodes near it."""
    near = torch.stack([torch.arange(nodes).repeat(3), torch.arange(3 * nodes) % nodes])
    near[1] = (near[0] + torch.arange(3).repeat_interleave(nodes)) % nodes
    steps = [("m", "to", "a"), ("a", "of", "m")]
    metapath = Metapath.of(steps, (["m", "a"], steps))
    return Chain.build(metapath, {steps[0]: near, steps[1]: near.flip(0)}, {"m": nodes, "a": nodes})


class _NothingLarge(TorchDispatchMode):
    """Refuses to make, or to read as a whole, a tensor with as many rows as the graph has nodes."""

    READS_LITTLE = ("aten::index", "aten::index_select", "aten::detach", "aten::alias")

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.nodes = nodes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        kept = {x.untyped_storage().data_ptr() for x in given if x.layout == torch.strided}
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        views = all(x.untyped_storage().data_ptr() in kept for x in made)
        if not views and func._schema.name not in self.READS_LITTLE:
            assert all(x.numel() < self.nodes for x in given), f"{func} reads it all"
        assert views or all(x.numel() < self.nodes for x in made), f"{func} makes too much"
        return out


@contextmanager
def nothing_large(nodes: int) -> Iterator[None]:
    with _NothingLarge(nodes), torch.no_grad():
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_work_grows_with_the_graph(kind: str, backend: str) -> None:
    nodes = 20_000
    chain = big_chain(nodes)
    *arguments, _ = random_arguments(chain, kind, heads=8, channels=2)
    roots = torch.tensor([7, 19_999, 4, 7])
    with nothing_large(nodes):
        metapath_attention(chain, *arguments, roots=roots, dropout=0.5, backend=backend)
    with pytest.raises(AssertionError), nothing_large(nodes):  # the guard itself sees something
        metapath_attention(chain, *arguments, dropout=0.5, backend=backend)
