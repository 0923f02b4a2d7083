"""A metapath on a graph: its relations as CSR arrays, and its instances counted, listed, sampled.

An instance is a walk (v0, v1, ..., vL) along the metapath's relations. The instances of a root are
numbered in the order in which a depth-first walk over the CSR arrays meets them; that number names
an instance whatever way it was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from scipy.sparse import csr_array
from torch import Tensor

from hanme.errors import HanmeError
from hanme.metapath import EdgeType, Metapath


@dataclass(frozen=True)
class Instances:
    """Some instances of one metapath.

    Args:
        nodes: Node ids by position, ``[P, L + 1]``; column 0 is the root.
        links: The CSR positions of the links walked, ``[P, L]``.
        number: Each instance's number among those of its root, ``[P]``.
    """

    nodes: Tensor
    links: Tensor
    number: Tensor

    def __len__(self) -> int:
        return self.nodes.size(0)


@dataclass(frozen=True, eq=False)
class Chain:
    """The relations of a metapath as CSR arrays, without the links that lead to a dead end.

    Args:
        metapath: What it was made from.
        sizes: The number of nodes at each of the L + 1 positions.
        indptr: For each hop l, where the links of each node at position l - 1 begin.
        indices: For each hop l, the node at position l that each link leads to.
    """

    metapath: Metapath
    sizes: tuple[int, ...]
    indptr: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]

    @classmethod
    def build(
        cls,
        metapath: Metapath,
        edge_index_dict: Mapping[EdgeType, Tensor],
        num_nodes: Mapping[str, int],
    ) -> Chain:
        """Reads a metapath's relations off a graph. Links listed twice are two links."""
        sizes = tuple(num_nodes[t] for t in metapath.node_types)
        indptr: list[Tensor] = []
        indices: list[Tensor] = []
        last = edge_index_dict[metapath.steps[-1]]
        alive = torch.ones(sizes[-1], dtype=torch.bool, device=last.device)
        for hop in reversed(range(len(metapath))):
            source, target = _checked(edge_index_dict, metapath.steps[hop], sizes[hop : hop + 2])
            source, target = source[alive[target]], target[alive[target]]
            key = source * sizes[hop + 1] + target
            if not (key[1:] >= key[:-1]).all():  # large relations come sorted where it matters
                target = target[torch.argsort(key, stable=True)]
            degree = torch.bincount(source, minlength=sizes[hop])
            indptr.insert(0, torch.cat([degree.new_zeros(1), degree.cumsum(0)]))
            indices.insert(0, target)
            alive = degree > 0
        return cls(metapath, sizes, tuple(indptr), tuple(indices))

    def __len__(self) -> int:
        """The number of hops, L."""
        return len(self.indices)

    @property
    def device(self) -> torch.device:
        return self.indices[0].device

    @cached_property
    def completions(self) -> tuple[Tensor, ...]:
        """How many ways there are to walk on to the end, per position and node: no enumeration."""
        ways = [torch.ones(self.sizes[-1], dtype=torch.long, device=self.device)]
        for hop in reversed(range(len(self))):
            onward = ways[0][self.indices[hop]]
            if float(onward.double().sum()) >= 2.0**62:
                raise HanmeError(
                    f"metapath {self.metapath}: more than 2^62 instances; take a shorter metapath"
                )
            total = torch.cat([onward.new_zeros(1), onward.cumsum(0)])
            ways.insert(0, total[self.indptr[hop][1:]] - total[self.indptr[hop][:-1]])
        return tuple(ways)

    def count(self) -> Tensor:
        """The number of instances of each root, ``[N_0]``, without listing one."""
        return self.completions[0]

    def instances(self, roots: Tensor | None = None) -> Instances:
        """All instances of some roots (default: of all), grouped by root in the order given."""
        roots = self._roots(roots)
        row = _repeat(self.count()[roots])
        _, links = self._walk_on(roots, (), len(self))
        return self._listed(roots[row], links, _number_within(row))

    def blocks(self, root: int, size: int) -> Iterator[Instances]:
        """All instances of one root in the order of their numbers, fewer than 2 ``size`` at a time.

        Sub-trees are taken whole where they are small enough, and cut a hop further on where not.
        """
        begin = 0
        stack: list[tuple[Tensor, tuple[Tensor, ...]]] = [
            (torch.tensor([root], device=self.device), ())
        ]
        while stack:
            node, links = stack.pop()  # prefixes: where they are, and the links that led there
            total = int(self.completions[len(links)][node].sum())
            if total < 2 * size:
                _, links = self._walk_on(node, links, len(self) - len(links))
                number = begin + torch.arange(total, device=self.device)
                yield self._listed(torch.full_like(number, root), links, number)
                begin += total
            else:
                node, links = self._walk_on(node, links, 1)
                part = (self.completions[len(links)][node].cumsum(0) - 1) // size
                sizes = torch.unique_consecutive(part, return_counts=True)[1].tolist()
                columns = zip(*(column.split(sizes) for column in links), strict=True)
                stack += reversed(list(zip(node.split(sizes), columns, strict=True)))

    def sample(self, n: int, *, seed: int, roots: Tensor | None = None) -> Instances:
        """At most ``n`` instances of each root, drawn evenly without replacement.

        Numbers are drawn first and then walked to, so that the cost is that of what is drawn:
        a root with a billion instances costs no more than one with a thousand.
        """
        if n < 1:
            raise HanmeError(f"Expected `n` to be at least 1 instance per root, but got {n}")
        roots = self._roots(roots)
        row, number = _draw(self.count()[roots].cpu(), n, torch.Generator().manual_seed(seed))
        return self.walk(roots[row.to(self.device)], number.to(self.device))

    def walk(self, roots: Tensor, number: Tensor) -> Instances:
        """The instances with the given roots and numbers, found without passing any other."""
        node, rest = roots, number
        nodes, links = [roots], []
        for hop in range(len(self)):
            onward = self.completions[hop + 1][self.indices[hop]]
            before = torch.cat([onward.new_zeros(1), onward.cumsum(0)])
            rest = before[self.indptr[hop][node]] + rest
            link = torch.searchsorted(before, rest, right=True) - 1
            rest = rest - before[link]
            node = self.indices[hop][link]
            nodes.append(node)
            links.append(link)
        return Instances(torch.stack(nodes, 1), torch.stack(links, 1), number)

    def ends(self) -> Chain:
        """The one-hop chain from each root to each distinct end of its instances: HAN's view."""
        product = self._matrix(0)
        for hop in range(1, len(self)):
            product = product @ self._matrix(hop)
            product.data[:] = 1  # whether, not how often: also keeps long products from overflow
        product.sum_duplicates()
        product.sort_indices()
        indptr = torch.from_numpy(product.indptr.astype("int64")).to(self.device)
        indices = torch.from_numpy(product.indices.astype("int64")).to(self.device)
        types, text = self.metapath.node_types, self.metapath.text
        metapath = Metapath(((types[0], text, types[-1]),), text)
        return Chain(metapath, (self.sizes[0], self.sizes[-1]), (indptr,), (indices,))

    def sources(self, hop: int) -> Tensor:
        """The node that each link of a hop starts from, beside ``indices[hop]``."""
        return _repeat(self.indptr[hop].diff())

    def _walk_on(
        self, node: Tensor, links: tuple[Tensor, ...], hops: int
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All ways to go on from some prefixes: the nodes reached and the links walked so far."""
        for hop in range(len(links), len(links) + hops):
            indptr = self.indptr[hop]
            degree = indptr[node + 1] - indptr[node]
            parent = _repeat(degree)
            link = (indptr[node] - (degree.cumsum(0) - degree))[parent]
            link = link + torch.arange(link.numel(), device=link.device)
            node = self.indices[hop][link]
            links = (*(column[parent] for column in links), link)
        return node, links

    def _listed(self, roots: Tensor, links: tuple[Tensor, ...], number: Tensor) -> Instances:
        onward = (i[link] for i, link in zip(self.indices, links, strict=True))
        return Instances(torch.stack([roots, *onward], 1), torch.stack(links, 1), number)

    def _matrix(self, hop: int) -> csr_array:
        indices, indptr = self.indices[hop].cpu().numpy(), self.indptr[hop].cpu().numpy()
        ones = torch.ones(len(indices), dtype=torch.int32).numpy()
        matrix = csr_array((ones, indices, indptr), shape=self.sizes[hop : hop + 2])
        matrix.sum_duplicates()
        return matrix

    def _roots(self, roots: Tensor | None) -> Tensor:
        if roots is None:
            return torch.arange(self.sizes[0], device=self.device)
        return roots.to(self.device)


def _checked(
    edge_index_dict: Mapping[EdgeType, Tensor], step: EdgeType, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """A relation's two rows, with every id inside its type."""
    edge_index = edge_index_dict[step]
    for row, size, node_type in zip(edge_index, sizes, (step[0], step[2]), strict=True):
        if row.numel() and (int(row.min()) < 0 or int(row.max()) >= size):
            raise HanmeError(
                f"relation {step}: it names nodes {int(row.min())} to {int(row.max())} of "
                f"{node_type}, which has {size:,} nodes"
            )
    return edge_index[0], edge_index[1]


def _repeat(counts: Tensor) -> Tensor:
    """0 repeated counts[0] times, 1 repeated counts[1] times, and so on."""
    return torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)


def _number_within(row: Tensor) -> Tensor:
    """0, 1, 2, ... within each run of equal rows."""
    counts = torch.bincount(row)
    return torch.arange(row.numel(), device=row.device) - (counts.cumsum(0) - counts)[row]


def _draw(counts: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows and numbers of at most ``n`` distinct numbers below each count."""
    # Few to choose from: shuffle all numbers of the row and keep the first n.
    few = (counts <= 2 * n).nonzero().flatten()
    row = _repeat(counts[few])
    shuffle = torch.randperm(row.numel(), generator=generator)
    shuffle = shuffle[torch.argsort(row[shuffle], stable=True)]  # rows together, shuffled within
    number = _number_within(row)
    kept = number < n
    rows, numbers = [few[row[kept]]], [number[shuffle][kept]]

    # Many: draw with replacement until n distinct numbers are there; each n-set is as likely.
    many = (counts > 2 * n).nonzero().flatten()
    drawn = torch.empty(0, 2, dtype=torch.long)
    missing = torch.full((many.numel(),), n)
    while missing.any():
        row = _repeat(missing)
        limit = counts[many[row]]
        number = (torch.rand(row.numel(), generator=generator, dtype=torch.float64) * limit).long()
        fresh = torch.stack([row, torch.minimum(number, limit - 1)], 1)
        drawn = torch.cat([drawn, fresh]).unique(dim=0)
        missing = n - torch.bincount(drawn[:, 0], minlength=many.numel())
    row, number = torch.cat([*rows, many[drawn[:, 0]]]), torch.cat([*numbers, drawn[:, 1]])
    order = torch.argsort(number, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    return row[order], number[order]
