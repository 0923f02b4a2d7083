"""The streaming backend against the eager one, and what only it promises."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import hanme
from graphs import KINDS, chains, random_arguments, random_chain
from hanme.errors import HanmeError
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.ops import Coefficients, Constant, LinkProduct, PairSigmoid, metapath_attention
from hanme.ops.streaming import kernels, simd


def run(
    backend: str, chain: Chain, arguments: list, leaves: list[Tensor], **options: object
) -> list[Tensor]:
    """z and the gradients of some function of it; zeros where a leaf is not used."""
    z = metapath_attention(chain, *arguments, backend=backend, **options)
    weights = torch.linspace(-1, 1, z.numel(), dtype=z.dtype).view_as(z)
    grads = torch.autograd.grad((z * weights).sum(), leaves, allow_unused=True)
    filled = zip(leaves, grads, strict=True)
    return [z.detach(), *(torch.zeros_like(x) if g is None else g for x, g in filled)]


def single(arguments: list) -> tuple[list, list[Tensor]]:
    """The arguments in float32, and their leaves."""
    values, c, root_score, attention = arguments
    known: dict[int, Tensor] = {}

    def leaf(x: Tensor) -> Tensor:
        return known.setdefault(id(x), x.detach().float().requires_grad_())

    made: Coefficients = c
    if isinstance(c, LinkProduct):
        made = LinkProduct(leaf(c.root), tuple(leaf(w) for w in c.links))
    elif isinstance(c, PairSigmoid):
        made = PairSigmoid(leaf(c.query), tuple(leaf(k) for k in c.keys))
    result = [[leaf(v) for v in values], made, leaf(root_score), leaf(attention)]
    return result, list(known.values())


@settings(max_examples=150, deadline=None)
@given(
    chain=chains(),
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from([(2, 3), (1, 1), (8, 4), (11, 2)]),
    dropout=st.sampled_from([0.0, 0.5]),
    some_roots=st.sampled_from(["all", "few", "none", "twice"]),
    hidden=st.integers(0, 31),
    parts=st.sampled_from([1, 1 << 16]),
    seed=st.integers(0, 10**6),
)
def test_equals_eager_in_values_and_gradients(
    chain: Chain,
    kind: str,
    shape: tuple[int, int],
    dropout: float,
    some_roots: str,
    hidden: int,
    parts: int,
    seed: int,
) -> None:
    values, *rest, leaves = random_arguments(
        chain, kind, heads=shape[0], channels=shape[1], seed=seed
    )
    values = [None if hidden == 1 << i else v for i, v in enumerate(values)]  # type: ignore[misc]
    order = torch.randperm(chain.sizes[0], generator=torch.Generator().manual_seed(seed))
    roots = {
        "all": None,
        "few": order[: 1 + chain.sizes[0] // 2],
        "none": order[:0],
        "twice": torch.cat([order, order[:2], order]),
    }[some_roots]
    options = {"roots": roots, "dropout": dropout, "seed": seed, "negative_slope": 0.1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hanme.ops.streaming.operator.PART_INSTANCES", parts)
        got = run("streaming", chain, [values, *rest], leaves, **options)
    expected = run("eager", chain, [values, *rest], leaves, **options)
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_float32_is_as_good_as_its_precision(kind: str, dropout: float, hops: int) -> None:
    chain = random_chain(hops, seed=hops, size=12, density=0.6)
    *arguments, _ = random_arguments(chain, kind, heads=8, channels=16)
    narrow, narrow_leaves = single(arguments)
    wide, wide_leaves = single(arguments)
    options = {"dropout": dropout, "seed": 4}
    got = run("streaming", chain, narrow, narrow_leaves, **options)
    expected = run("eager", chain, *_doubled(wide, wide_leaves), **options)
    for x, y in zip(got, expected, strict=True):
        assert x.dtype == torch.float32
        torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=1e-5 * float(y.abs().max()))


def _doubled(arguments: list, leaves: list[Tensor]) -> tuple[list, list[Tensor]]:
    """The same numbers in float64."""
    known = {id(x): x.detach().double().requires_grad_() for x in leaves}
    values, c, root_score, attention = arguments
    if isinstance(c, LinkProduct):
        c = LinkProduct(known[id(c.root)], tuple(known[id(w)] for w in c.links))
    elif isinstance(c, PairSigmoid):
        c = PairSigmoid(known[id(c.query)], tuple(known[id(k)] for k in c.keys))
    made = [[known[id(v)] for v in values], c, known[id(root_score)], known[id(attention)]]
    return made, list(known.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradcheck(kind: str, dropout: float) -> None:
    chain = random_chain(3, seed=5, size=4)
    *arguments, leaves = random_arguments(chain, kind)

    def attend(*_: Tensor) -> Tensor:
        return metapath_attention(chain, *arguments, dropout=dropout, seed=3, backend="streaming")

    assert torch.autograd.gradcheck(attend, tuple(leaves))


@pytest.mark.parametrize("kind", KINDS)
def test_positions_that_share_their_values_are_one_to_it(kind: str) -> None:
    """As an encoder gives them: the same tensor wherever the same type is."""
    chain = there_and_back()
    *arguments, leaves = random_arguments(chain, kind)
    values, c, *rest = arguments
    values = [values[i % 2] for i in range(5)]
    if isinstance(c, PairSigmoid):
        c = PairSigmoid(c.query, tuple(c.keys[i % 2] if i else c.keys[4] for i in range(5)))
    shared = [values, c, *rest]
    for x, y in zip(
        run("streaming", chain, shared, leaves), run("eager", chain, shared, leaves), strict=True
    ):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)


def there_and_back() -> Chain:
    """a-b-a-b-a on a random graph."""
    generator = torch.Generator().manual_seed(2)
    edge_index = (torch.rand(7, 5, generator=generator) < 0.4).nonzero().t()
    out, back = ("a", "to", "b"), ("b", "of", "a")
    metapath = Metapath.of([out, back, out, back], (["a", "b"], [out, back]))
    return Chain.build(metapath, {out: edge_index, back: edge_index.flip(0)}, {"a": 7, "b": 5})


def hub_chain(nodes: int, hubs: int, *, seed: int = 0) -> Chain:
    """root-hub-end: every root and every end has a link to one of some hubs."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.arange(nodes)
    hub = torch.randint(hubs, (2, nodes), generator=generator)
    steps = [("root", "to", "hub"), ("hub", "to", "end")]
    metapath = Metapath.of(steps, (["root", "hub", "end"], steps))
    edges = {steps[0]: torch.stack([ends, hub[0]]), steps[1]: torch.stack([hub[1], ends])}
    return Chain.build(metapath, edges, {"root": nodes, "hub": nodes, "end": nodes})


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_changes_no_bit(kind: str) -> None:
    chain = hub_chain(700, 5)
    *arguments, _ = random_arguments(chain, kind, heads=8, channels=16)
    arguments, leaves = single(arguments)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(run("streaming", chain, arguments, leaves, dropout=0.5, seed=1))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        for x, y in zip(results[0], result, strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [-5000.0, 0.0, 5000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_in_the_thousands(kind: str, shift: float, dtype: torch.dtype) -> None:
    """Far from 0 and far from each other, so that a root's reference has to be found."""
    chain = random_chain(3, seed=3, density=0.7)
    *arguments, leaves = random_arguments(chain, kind)
    if dtype == torch.float32:
        arguments, leaves = single(arguments)
    values, c, root_score, attention = arguments
    arguments = [values, c, root_score + shift, attention * 1000]
    got = run("streaming", chain, arguments, leaves)
    expected = run("eager", chain, [values, c, root_score + shift, attention * 1000], leaves)
    assert all(x.isfinite().all() for x in got)
    if dtype == torch.float32:  # a score of 5000 is known to 1 in 1000, and so is its exponential
        torch.testing.assert_close(got[0], expected[0], rtol=2e-3, atol=2e-3)
        return
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)


def test_a_million_instances_of_one_root_keep_float32_exact() -> None:
    n = 1 << 20
    steps = [("root", "to", "end")]
    metapath = Metapath.of(steps, (["root", "end"], steps))
    edges = {steps[0]: torch.stack([torch.zeros(n, dtype=torch.long), torch.arange(n)])}
    chain = Chain.build(metapath, edges, {"root": 1, "end": n})
    generator = torch.Generator().manual_seed(0)
    end = torch.rand(n, 1, 1, generator=generator)
    z = metapath_attention(
        chain, [None, end], Constant((0.0, 1.0)), torch.zeros(1, 1), torch.ones(1, 1),
        backend="streaming",
    )  # fmt: skip
    end = end.double().flatten()
    torch.testing.assert_close(float(z), float(end.softmax(0) @ end), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_is_within_a_unit_in_the_last_place(dtype: type) -> None:
    from numba import njit

    @njit
    def exponentials(x, y):  # type: ignore[no-untyped-def]
        for i in range(x.size // simd.LANES):
            simd.store(y, i, simd.exp(simd.load(x, i)))

    x = np.linspace(-86, 80, 1 << 16).astype(dtype)
    y = np.empty_like(x)
    exponentials(x, y)
    exact = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(y - exact) / exact) < np.finfo(dtype).eps
    special = np.array([0, -np.inf, np.nan, -1e4, -1e30, 1, -0.0, 2], dtype)
    exponentials(special, y)
    np.testing.assert_allclose(y[:8], np.exp(special), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_compiled_code_could_not_read_is_refused(kind: str) -> None:
    chain = random_chain(1)
    *arguments, _ = random_arguments(chain, kind)
    values, c, root_score, attention = arguments
    for other in (attention.half(), attention.float()):
        with pytest.raises(HanmeError, match="float32 or float64 tensors on cpu"):
            metapath_attention(chain, values, c, root_score, other, backend="streaming")
    for roots in (torch.tensor([-1]), torch.tensor([99])):
        with pytest.raises(HanmeError, match="`roots` to be from 0"):
            metapath_attention(chain, *arguments, roots=roots, backend="streaming")


# What needs a process of its own.


def attend_to_hubs(numbers: list[int]) -> dict:
    """Attend to graphs with so many hubs: what comes out, and what it took."""
    results, instances, peaks = [], [], []
    for hubs in numbers:
        chain = hub_chain(3000, hubs)
        h = torch.linspace(-1, 1, 3000 * 8 * 16).view(3000, 8, 16).requires_grad_()
        z = metapath_attention(
            chain, [h, h, h], Constant((0.3, 0.3, 0.3)), h[..., 0], h[7], backend="streaming"
        )
        z.square().sum().backward()
        results.append([float(z.double().sum()), float(h.grad.double().sum())])
        instances.append(int(chain.count().sum()))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    stats = kernels.attend.stats
    return {
        "results": results,
        "instances": instances,
        "peaks": peaks,
        "hits": sum(stats.cache_hits.values()),
        "misses": sum(stats.cache_misses.values()),
        "where": stats.cache_path,
        "file": kernels.__file__,
    }


PROGRAM = """
import json, sys
from test_streaming import attend_to_hubs

print(json.dumps(attend_to_hubs(json.loads(sys.argv[1]))))
"""


def in_another_process(hubs: list[int], *paths: Path, **environment: str) -> dict:
    here = Path(__file__).parent
    source = Path(hanme.__file__).parent.parent
    path = os.pathsep.join(map(str, [*paths, source, here, here.parent]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(hubs)],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_instances() -> None:
    found = in_another_process([3000, 1])
    few, many = found["instances"]
    assert few * 500 < many
    first, last = found["peaks"]
    assert last < 1.05 * first


@pytest.mark.slow
def test_a_second_process_does_not_compile(tmp_path: Path) -> None:
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    first = in_another_process([100], **cache)
    second = in_another_process([100], **cache)
    assert first["hits"] == 0
    assert first["misses"] == 1
    assert second["hits"] == 1
    assert second["misses"] == 0
    assert first["results"] == second["results"]


@pytest.mark.slow
def test_kernels_are_compiled_again_when_the_lanes_change(tmp_path: Path) -> None:
    package, cache = tmp_path / "hanme", {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    source = Path(hanme.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = in_another_process([100], tmp_path, **cache)
    lanes = package / "ops" / "streaming" / "simd.py"
    text = lanes.read_text()
    assert text.count("degree = (23, 127, 7)") == 1
    lanes.write_text(text.replace("(23, 127, 7)", "(23, 127, 2)"))  # a worse exponential
    after = in_another_process([100], tmp_path, **cache)
    assert (after["hits"], after["misses"]) == (0, 1)
    assert after["results"] != before["results"]


@pytest.mark.slow
def test_works_where_nothing_can_be_written(tmp_path: Path) -> None:
    """No cache of the user's, and none beside the code: a path below a file is no directory."""
    package = tmp_path / "hanme"
    source = Path(hanme.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "ops" / "streaming" / "__pycache__").write_text("in the way")
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    places = dict.fromkeys(["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"], str(nowhere / "below"))
    got = in_another_process([100], tmp_path, **places)
    assert Path(got["file"]).is_relative_to(tmp_path)
    assert got["where"] is None
    assert got["results"] == attend_to_hubs([100])["results"]


@pytest.mark.parametrize("kind", KINDS)
def test_long_work_in_other_threads_gives_the_same_bits(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = random_chain(3, seed=3, size=20, density=0.6)
    *doubles, _ = random_arguments(chain, kind, heads=11)
    arguments, leaves = single(doubles)
    expected = run("streaming", chain, arguments, leaves, dropout=0.5, seed=1)
    monkeypatch.setattr("hanme.ops.streaming.operator.LONG", 50)
    found = run("streaming", chain, arguments, leaves, dropout=0.5, seed=1)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


FOREVER = """
import torch
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.ops import Constant, metapath_attention

torch.set_num_threads(1)
links = torch.cartesian_prod(torch.arange(2000), torch.arange(40)).T.contiguous()
relations = {("a", "to", "b"): links, ("b", "to", "a"): links.flip(0)}
metapath = Metapath.of("a-b-a-b", (["a", "b"], list(relations)))
chain = Chain.build(metapath, relations, {"a": 2000, "b": 40})
values = [torch.zeros(size, 8, 1) for size in chain.sizes]
print("begins", flush=True)
metapath_attention(
    chain, values, Constant((1.0,) * 4), torch.zeros(2000, 8), torch.zeros(8, 1),
    backend="streaming",
)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_walk_of_billions_of_instances_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FOREVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    try:
        assert process.communicate(timeout=5)[1].endswith("KeyboardInterrupt\n")
    finally:
        process.kill()
