"""The operator against a loop over instances, its backends against each other."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from graphs import KINDS, chains, random_arguments, random_chain
from hanme.errors import HanmeError
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.ops import BACKENDS, Coefficients, Constant, LinkProduct, metapath_attention
from hanme.ops import chunked as chunked_module
from hanme.ops.cost import memory


def walks(chain: Chain, root: int) -> list[tuple[list[int], list[int]]]:
    """The instances of a root by plain recursion: (nodes, links)."""
    found: list[tuple[list[int], list[int]]] = [([root], [])]
    for indptr, indices in zip(chain.indptr, chain.indices, strict=True):
        found = [
            ([*nodes, int(indices[link])], [*links, link])
            for nodes, links in found
            for link in range(int(indptr[nodes[-1]]), int(indptr[nodes[-1] + 1]))
        ]
    return found


def coefficient(c: Coefficients, position: int, nodes: list[int], links: list[int], head: int):
    if isinstance(c, Constant):
        return c.c[position]
    if isinstance(c, LinkProduct):
        if position == 0:
            return float(c.root[nodes[0], head])
        return math.prod(float(c.links[j][links[j], head]) for j in range(position))
    dot = float(c.query[nodes[0], head] @ c.keys[position][nodes[position], head])
    return 1 / (1 + math.exp(-dot))


def by_loop(chain, values, c, root_score, attention, slope=0.2):
    """The formula, one instance and head at a time, in Python."""
    heads, channels = attention.shape
    z = torch.zeros(chain.sizes[0], heads, channels, dtype=torch.double)
    for root in range(chain.sizes[0]):
        for head in range(heads):
            encoded, scores = [], []
            for nodes, links in walks(chain, root):
                e = sum(
                    coefficient(c, position, nodes, links, head) * value[nodes[position], head]
                    for position, value in enumerate(values)
                )
                score = float(root_score[root, head] + attention[head] @ e)
                encoded.append(e)
                scores.append(score if score > 0 else slope * score)
            total = sum(math.exp(s) for s in scores)
            for e, s in zip(encoded, scores, strict=True):
                z[root, head] += math.exp(s) / total * e.detach()
    return z


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_equals_a_loop_over_instances(backend: str, kind: str, hops: int) -> None:
    chain = random_chain(hops, seed=hops)
    *arguments, _ = random_arguments(chain, kind)
    z = metapath_attention(chain, *arguments, backend=backend)
    torch.testing.assert_close(z, by_loop(chain, *arguments))


@settings(max_examples=60, deadline=None)
@given(
    chain=chains(),
    kind=st.sampled_from(KINDS),
    dropout=st.sampled_from([0.0, 0.5]),
    block=st.sampled_from([1, 3, 1 << 18]),
    subset=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_backends_agree_in_values_and_gradients(
    chain: Chain, kind: str, dropout: float, block: int, subset: bool, seed: int
) -> None:
    *arguments, leaves = random_arguments(chain, kind, seed=seed)
    roots = torch.randperm(chain.sizes[0])[: 1 + chain.sizes[0] // 2] if subset else None
    results = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked_module, "BLOCK", block)
        for backend in BACKENDS:
            z = metapath_attention(
                chain, *arguments, roots=roots, dropout=dropout, seed=seed, backend=backend
            )
            weights = torch.linspace(-1, 1, z.numel(), dtype=torch.double).view_as(z)
            grads = torch.autograd.grad((z * weights).sum(), leaves, allow_unused=True)
            results[backend] = (z, *grads)
    reference = results.pop("eager")
    for result in results.values():
        for got, expected in zip(result, reference, strict=True):
            zero = torch.zeros(())
            torch.testing.assert_close(
                zero if got is None else got.sum(),
                zero if expected is None else expected.sum(),
                check_dtype=False,
            )
            if got is not None and expected is not None:
                torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradcheck(backend: str, kind: str, dropout: float) -> None:
    chain = random_chain(2, seed=5, size=4)
    *_, leaves = random_arguments(chain, kind)

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        arguments = _with_leaves(chain, kind, tensors)
        return metapath_attention(chain, *arguments, dropout=dropout, seed=3, backend=backend)

    assert torch.autograd.gradcheck(run, tuple(leaves))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("backend", "block"), [("eager", 0), ("chunked", 1 << 18), ("chunked", 3)])
def test_second_derivatives(
    backend: str, block: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_module, "BLOCK", block)
    chain = random_chain(2, seed=5, size=4)
    *_, leaves = random_arguments(chain, kind)

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return metapath_attention(chain, *_with_leaves(chain, kind, tensors), backend=backend)

    assert torch.autograd.gradgradcheck(run, tuple(leaves), fast_mode=True)


def _with_leaves(chain: Chain, kind: str, leaves: tuple[torch.Tensor, ...]):
    """The arguments of `random_arguments` with these leaves in place of its own."""
    values, c, *_ = random_arguments(chain, kind)
    rest = leaves[len(values) :]
    if kind == "link product":
        c = LinkProduct(rest[-3], tuple(rest[:-3]))
    elif kind == "pair sigmoid":
        c = type(c)(rest[-3], tuple(rest[:-3]))
    return list(leaves[: len(values)]), c, rest[-2], rest[-1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_root_without_instances_gets_zeros(backend: str) -> None:
    chain = random_chain(2, seed=1, density=0.0)
    *arguments, _ = random_arguments(chain, "link product")
    assert not metapath_attention(chain, *arguments, backend=backend).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_root_does_not_depend_on_which_others_are_asked_for(backend: str) -> None:
    chain = random_chain(3, seed=8)
    *arguments, _ = random_arguments(chain, "link product")
    whole = metapath_attention(chain, *arguments, dropout=0.5, seed=7, backend=backend)
    for root in range(chain.sizes[0]):
        alone = metapath_attention(
            chain, *arguments, roots=torch.tensor([root]), dropout=0.5, seed=7, backend=backend
        )
        torch.testing.assert_close(alone[0], whole[root])


def test_large_scores_do_not_overflow() -> None:
    chain = random_chain(2, seed=3)
    values, c, root_score, a, _ = random_arguments(chain, "constant")
    for backend in BACKENDS:
        z = metapath_attention(chain, values, c, root_score + 5000, a, backend=backend)
        assert z.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "quick"}, "auto, eager, chunked, streaming"),
        ({"dropout": 1.0}, "dropout"),
        ({"root_score": torch.zeros(1, 1)}, "root_score"),
        ({"attention": torch.zeros(3)}, "attention"),
        ({"values": []}, "values"),
        ({"roots": torch.ones(3, dtype=torch.bool)}, "`roots` to be node ids"),
        ({"roots": torch.tensor([0, 10**6])}, "`roots` to be from 0 to"),
        ({"roots": torch.tensor([-1])}, "`roots` to be from 0 to"),
        ({"coefficients": Constant((1.0,))}, "constants"),
        ({"coefficients": LinkProduct(torch.zeros(1, 1), ())}, "coefficients.root"),
    ],
)
def test_arguments_that_do_not_fit_are_named(change: dict, message: str) -> None:
    chain = random_chain(2, seed=3)
    names = ("values", "coefficients", "root_score", "attention")
    arguments = dict(zip(names, random_arguments(chain, "constant")[:4], strict=True))
    with pytest.raises(HanmeError, match=message):
        metapath_attention(chain, **(arguments | change))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_memory_stated_is_about_what_is_used(backend: str, kind: str) -> None:
    """Against what PyTorch allocates, which for streaming is not all: Numba has tables too."""
    n = 120
    every = torch.arange(n)
    steps = [("root", "to", "hub"), ("hub", "to", "end")]  # each pair of root and end is met once
    edges = {
        steps[0]: torch.stack([every, torch.zeros_like(every)]),
        steps[1]: torch.stack([torch.zeros_like(every), every]),
    }
    metapath = Metapath.of(steps, (["root", "hub", "end"], steps))
    chain = Chain.build(metapath, edges, {"root": n, "hub": n, "end": n})
    *arguments, leaves = random_arguments(chain, kind, heads=8, channels=16)

    def run() -> None:
        z = metapath_attention(chain, *arguments, dropout=0.5, seed=1, backend=backend)
        torch.autograd.grad(z.square().sum(), leaves, allow_unused=True)

    run()  # what is made once for a chain is there
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    events = profiled.profiler.kineto_results.events()
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    doubles = 2  # stated for float32
    assert peak / 3 < doubles * memory(backend, chain, 8, 16) < 3 * peak
