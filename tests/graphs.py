"""Random small heterogeneous graphs and operator arguments for the tests."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from hanme.graph.chain import Chain
from hanme.graph.metapath import EdgeType, Metapath
from hanme.ops import Coefficients, Constant, LinkProduct, PairSigmoid

KINDS = ("constant", "link product", "pair sigmoid")


def random_chain(hops: int, *, seed: int = 0, size: int = 6, density: float = 0.4) -> Chain:
    """A chain of random relations between types t0, t1, ...: dead ends, hubs, parallel links."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [int(torch.randint(2, size + 1, (), generator=generator)) for _ in range(hops + 1)]
    steps: list[EdgeType] = []
    edges: dict[EdgeType, Tensor] = {}
    for hop in range(hops):
        step = (f"t{hop}", "to", f"t{hop + 1}")
        linked = torch.rand(sizes[hop], sizes[hop + 1], generator=generator) < density
        edge_index = linked.nonzero().t()
        repeated = edge_index[:, torch.rand(edge_index.size(1), generator=generator) < 0.2]
        edges[step] = torch.cat([edge_index, repeated], 1)
        steps.append(step)
    metapath = Metapath.of(steps, ([f"t{i}" for i in range(hops + 1)], steps))
    return Chain.build(metapath, edges, {f"t{i}": n for i, n in enumerate(sizes)})


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Chains of 1 to 4 hops, from empty to dense."""
    return random_chain(
        draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 10**6)),
        size=draw(st.integers(2, 6)),
        density=draw(st.sampled_from([0.0, 0.2, 0.5, 0.9])),
    )


def random_arguments(
    chain: Chain, kind: str, *, heads: int = 2, channels: int = 3, seed: int = 0
) -> tuple[list[Tensor], Coefficients, Tensor, Tensor, list[Tensor]]:
    """Operator arguments in double precision, and the leaves that need gradients."""
    generator = torch.Generator().manual_seed(seed)
    leaves: list[Tensor] = []

    def leaf(*shape: int) -> Tensor:
        tensor = torch.randn(*shape, generator=generator, dtype=torch.double)
        leaves.append(tensor.requires_grad_())
        return tensor

    values = [leaf(size, heads, channels) for size in chain.sizes]
    coefficients: Coefficients
    if kind == "constant":
        coefficients = Constant(tuple(0.3 + 0.1 * i for i in range(len(chain) + 1)))
    elif kind == "link product":
        links = tuple(leaf(indices.numel(), heads) for indices in chain.indices)
        coefficients = LinkProduct(leaf(chain.sizes[0], heads), links)
    else:
        keys = tuple(leaf(size, heads, channels) for size in chain.sizes)
        coefficients = PairSigmoid(leaf(chain.sizes[0], heads, channels), keys)
    return values, coefficients, leaf(chain.sizes[0], heads), leaf(heads, channels), leaves


FILMS_TOML = """target = "film"
[nodes.film]
table = "films.csv"
id = "id"
name = "title"
label = "genre"
[nodes.film.features]
year = "number"
country = "category"
tags = {kind = "list", separator = "|"}
plot = "text"
[nodes.person]
table = "people.csv"
id = "id"
[relations.played]
table = "roles.csv"
source = {type = "film", column = "film"}
target = {type = "person", column = "person"}
"""
"""Films with features of every kind, people, and who played in what, as a graph.toml."""
