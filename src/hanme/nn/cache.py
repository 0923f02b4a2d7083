"""What a layer makes of a graph once, kept while the graph stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

T = TypeVar("T")


class GraphCache(Generic[T]):
    """Hold what was made from the last graph seen."""

    def __init__(self) -> None:
        self._last: tuple[list[Tensor], list[int], T] | None = None

    def __getstate__(self) -> dict[str, None]:
        """Leave out what is held: sparse tensors cannot be copied."""
        return {"_last": None}

    def get(self, tensors: Sequence[Tensor], make: Callable[[], T], sizes: Sequence[int] = ()) -> T:
        """Return what ``make`` gives: anew if a tensor is another or was changed, or a size is."""
        state = [_version(x) for x in tensors] + list(sizes)
        if self._last is not None and len(tensors) == len(self._last[0]):
            same = all(a is b for a, b in zip(tensors, self._last[0], strict=True))
            if same and state == self._last[1]:
                return self._last[2]
        self._last = (list(tensors), state, make())
        return self._last[2]


class Ahead(Generic[T]):
    """Hold what another thread has made for some roots until they are asked for."""

    def __init__(self) -> None:
        self._made = WeakTensorKeyDictionary()

    def __reduce__(self) -> tuple[type[Ahead[T]], tuple[()]]:
        """Copy none of it."""
        return Ahead, ()

    def put(self, roots: Tensor, made: T) -> None:
        """Keep what was made for a tensor of roots, as long as the tensor lives."""
        self._made[roots] = made

    def take(self, roots: Tensor) -> T | None:
        """Return what was made for the very tensor, and let it go."""
        made: T | None = self._made.pop(roots, None)  # type: ignore[no-untyped-call]
        return made


def _version(x: Tensor) -> int:
    x = x.values() if x.layout == torch.sparse_csr else x
    return 0 if x.is_inference() else x._version
