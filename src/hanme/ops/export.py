"""Chains for ``torch.export``: sizes that depend on the links come from operators of their own.

An exported program calls these operators by name, so a process that loads one imports hanme.nn
first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from hanme.graph.chain import Chain, Instances, checked_links, checked_roots
from hanme.graph.metapath import EdgeType, Metapath


@torch.library.custom_op("hanme::chain", mutates_args=())
def build(links: list[Tensor], sizes: list[int], steps: str, text: str) -> list[Tensor]:
    """Return indptr and indices of each hop of a chain, and the number of instances by root."""
    metapath = Metapath(tuple(tuple(step) for step in json.loads(steps)), text)
    by_step = dict(zip(metapath.steps, links, strict=True))
    by_type = dict(zip(metapath.node_types, sizes, strict=True))
    return _tensors(Chain.build(metapath, by_step, by_type))


build.register_fake(lambda links, sizes, steps, text: _unknown(links[0], sizes))


@torch.library.custom_op("hanme::chain_ends", mutates_args=())
def ends(indptr: list[Tensor], indices: list[Tensor], sizes: list[int], text: str) -> list[Tensor]:
    """Return the same for the chain from roots to the distinct ends of their instances."""
    return _tensors(_chain(indptr, indices, sizes, text).ends)


ends.register_fake(lambda indptr, _, sizes, text: _unknown(indptr[0], [sizes[0], sizes[-1]]))


@torch.library.custom_op("hanme::instances", mutates_args=())
def instances(
    indptr: list[Tensor], indices: list[Tensor], sizes: list[int], text: str, roots: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return nodes, links and numbers of the instances of some roots."""
    checked_roots(roots, sizes[0])
    found = _chain(indptr, indices, sizes, text).instances(roots)
    return found.nodes, found.links, found.number.clone()


@instances.register_fake
def _(
    indptr: list[Tensor], indices: list[Tensor], sizes: list[int], text: str, roots: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    count, hops = torch.library.get_ctx().new_dynamic_size(), len(indices)
    shapes = (count, hops + 1), (count, hops), (count,)
    nodes, links, number = (roots.new_empty(shape, dtype=torch.long) for shape in shapes)
    return nodes, links, number


@dataclass(frozen=True, eq=False)
class ExportedChain(Chain):
    """A chain whose numbers of links and instances are not known yet."""

    counts: Tensor | None = None

    @classmethod
    def cached(
        cls,
        metapath: Metapath,
        edge_index_dict: Mapping[EdgeType, Tensor],
        num_nodes: Mapping[str, int],
        root_ids: Tensor | None = None,
    ) -> Chain:
        """Build it wherever the exported program runs."""
        links = [checked_links(edge_index_dict.get(step), step) for step in metapath.steps]
        sizes = [num_nodes[t] for t in metapath.node_types]
        made = build(links, sizes, json.dumps(metapath.steps), metapath.text)
        return cls._of(metapath, sizes, made)

    @classmethod
    def _of(cls, metapath: Metapath, sizes: list[int], made: list[Tensor]) -> ExportedChain:
        *hops, counts = made
        half = len(hops) // 2
        arrays = tuple(hops[:half]), tuple(hops[half:])
        return cls(metapath, tuple(sizes), *arrays, counts=counts)

    def count(self) -> Tensor:
        """Return the number of instances of each root, ``[N_0]``."""
        assert self.counts is not None
        return self.counts

    def instances(self, roots: Tensor | None = None) -> Instances:
        """List the instances of some roots (default: all), grouped by root in the order given."""
        if roots is None:
            roots = torch.arange(self.sizes[0], device=self.device)
        return Instances(*instances(*self._arguments, roots))

    @cached_property
    def ends(self) -> Chain:
        """The one-hop chain from roots to the distinct ends of their instances."""
        sizes = [self.sizes[0], self.sizes[-1]]
        return self._of(self.metapath.in_one_step(), sizes, ends(*self._arguments))

    @property
    def _arguments(self) -> tuple[list[Tensor], list[Tensor], list[int], str]:
        return list(self.indptr), list(self.indices), list(self.sizes), self.metapath.text


def _tensors(chain: Chain) -> list[Tensor]:
    return [*chain.indptr, *chain.indices, chain.count()]


def _chain(indptr: list[Tensor], indices: list[Tensor], sizes: list[int], text: str) -> Chain:
    metapath = Metapath((("", "", ""),) * len(indices), text)
    return Chain(metapath, tuple(sizes), tuple(indptr), tuple(indices))


def _unknown(like: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return what stands for a chain while a model is exported: any number of links per hop."""
    context = torch.library.get_ctx()
    shapes: list[int | torch.SymInt] = [size + 1 for size in sizes[:-1]]
    shapes += [context.new_dynamic_size() for _ in sizes[1:]]
    return [like.new_empty([size], dtype=torch.long) for size in (*shapes, sizes[0])]
