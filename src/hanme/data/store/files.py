"""The files of a store: flat arrays, and a manifest with a checksum per block of each.

Opening reads no array: a block is verified when one of its numbers is first read.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from hanme.common.arrays import concat_ranges
from hanme.common.files import write_json
from hanme.common.memory import mapped as map_file
from hanme.common.options import Closed
from hanme.errors import HanmeError

MANIFEST = "manifest.json"
MARKER = "hanme store"
"""The first key of a manifest; its value is the version of the format."""

BLOCK = 1 << 16
"""Bytes per checksum: small enough to verify single rows, checksums are 0.02 % of the data."""

Size = Annotated[int, Field(ge=0, lt=2**48)]


class ArrayFile(Closed):
    """What the manifest says of an array."""

    dtype: Literal["uint8", "int32", "int64", "float32"]
    shape: list[Size] = Field(min_length=1, max_length=2)
    checksums: list[int]  # CRC-32 of each block

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass
class ArrayWriter:
    """Append rows to an array file."""

    file: BinaryIO
    dtype: str
    rows: int = 0  # number of rows written

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows at the end."""
        self.file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)


class StoreWriter:
    """Write the files of a store into a folder; ``arrays`` are those written so far, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrays: dict[str, MappedArray] = {}

    @contextmanager
    def array(self, name: str, dtype: str, shape: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
        """Open an array for writing; ``shape`` is that of a row."""
        path = self.folder / f"{name}.bin"
        with path.open("w+b") as file:
            writer = ArrayWriter(file, dtype)
            yield writer
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            checksums = [zlib.crc32(block) for block in iter(partial(file.read, BLOCK), b"")]
        about = {"dtype": dtype, "shape": [writer.rows, *shape], "checksums": checksums}
        self.arrays[name] = MappedArray(path, ArrayFile.model_validate(about))

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Write a whole array."""
        with self.array(name, array.dtype.name, array.shape[1:]) as writer:
            writer.append(array)

    def finish(self, header: dict[str, Any]) -> None:
        """Write the manifest."""
        files = {name: array.about.model_dump() for name, array in self.arrays.items()}
        write_json(self.folder / MANIFEST, {MARKER: 4, **header, "files": files})


class MappedArray:
    """An array in a file, mapped or read into memory; a block is verified before it is used."""

    def __init__(self, path: Path, about: ArrayFile, *, mapped: bool = True) -> None:
        self.path, self.about, self.shape = path, about, tuple(about.shape)
        flat = torch.empty(0, dtype=getattr(torch, about.dtype))
        if about.nbytes and mapped:
            with path.open("rb") as file:
                flat = map_file(file.fileno(), flat.dtype)
        elif about.nbytes:
            flat = torch.from_numpy(np.fromfile(path, about.dtype))
        self._tensor, self._flat = flat.view(about.shape), flat.numpy()
        self._verified = np.zeros(len(about.checksums), np.bool_)
        self._bounds: tuple[int, int, bool] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def require(self, low: int, high: int, *, ascending: bool = False) -> None:
        """Refuse numbers outside ``[low, high)``, or not ascending over all of it, when read."""
        self._bounds = low, high, ascending

    def all(self) -> Tensor:
        """Return the whole array, verified."""
        self._verify(np.arange(len(self._verified)))
        return self._tensor

    def rows(self, numbers: Tensor) -> Tensor:
        """Return some rows; only their blocks are read."""
        row = self.about.nbytes // max(1, len(self))
        if row and not self._verified.all():
            first, last = numbers * row // BLOCK, ((numbers + 1) * row - 1) // BLOCK
            self._verify(concat_ranges(first, last - first + 1)[0].numpy())
        return self._tensor.index_select(0, numbers)

    def _verify(self, blocks: NDArray[np.int64]) -> None:
        size = BLOCK // self._flat.itemsize
        for block in np.unique(blocks[~self._verified[blocks]]).tolist():
            begin = block * size
            content = self._flat[begin : begin + size].view(np.uint8).data
            if zlib.crc32(content) != self.about.checksums[block] or not self._valid(begin, size):
                at = f"{block * BLOCK:,}"
                raise HanmeError(f"{self.path}: damaged from byte {at}; store the graph again")
            self._verified[block] = True

    def _valid(self, begin: int, size: int) -> bool:
        """Return whether the numbers of a block are within the bounds."""
        if self._bounds is None:
            return True
        low, high, ascending = self._bounds
        numbers = self._flat[begin : begin + size + 1]  # with the first one of the next block
        if int(numbers.min()) < low or int(numbers.max()) >= high:
            return False
        ends = self._flat[0] == low and self._flat[-1] == high - 1
        return not ascending or bool(ends and (np.diff(numbers) >= 0).all())
