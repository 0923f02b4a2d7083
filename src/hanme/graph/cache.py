"""Values computed once per graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

T = TypeVar("T")


class GraphCache(Generic[T]):
    """Values computed from tensors, kept until one of the tensors is changed or freed."""

    def __init__(self) -> None:
        self._entries = WeakTensorKeyDictionary()

    def __reduce__(self) -> tuple[type[GraphCache[T]], tuple[()]]:
        """Copy no values: a copy of a layer starts with an empty cache."""
        return GraphCache, ()

    def get(self, tensors: Sequence[Tensor], make: Callable[[], T], key: Hashable = ()) -> T:
        """Return the value that ``make`` computes from some tensors, computed once.

        The value must not refer to the first tensor. ``key`` is what else it depends on: values
        for the same first tensor and key replace each other.
        """
        first, *rest = tensors
        versions = [_version(x) for x in tensors]
        entries: dict[Hashable, Any] = self._entries.setdefault(first, {})  # type: ignore[no-untyped-call]
        refs, then, value = entries.get(key, ((), None, None))
        if then != versions or any(a() is not b for a, b in zip(refs, rest, strict=True)):
            value = make()
            entries[key] = ([TensorWeakRef(x) for x in rest], versions, value)
        return value  # type: ignore[no-any-return]


def versions(objects: Iterable[object]) -> list[tuple[object, int]]:
    """Return objects, each with the number of changes that were made to it in place."""
    return [(x, _version(x) if isinstance(x, Tensor) else 0) for x in objects]


def unchanged(before: Sequence[tuple[object, int]], now: Sequence[tuple[object, int]]) -> bool:
    """Return whether these are the same objects, without a change in between."""
    pairs = zip(before, now, strict=False)
    return len(before) == len(now) and all(a is b and v == w for (a, v), (b, w) in pairs)


def _version(x: Tensor) -> int:
    x = x.values() if x.layout == torch.sparse_csr else x
    return 0 if x.is_inference() else x._version
