"""The files of a store: flat arrays, a checksum per block of each, and a manifest.

``manifest.json`` is written last and names every file with its size, so an incomplete store does
not open. ``checksums.bin`` has a CRC-32 of every block of 64 KiB. Opening reads no data: a block is
verified when one of its numbers is first read.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.arrays import concat_ranges
from hanme.common.files import write_json
from hanme.common.memory import mapped
from hanme.errors import HanmeError

MANIFEST, CHECKSUMS = "manifest.json", "checksums.bin"
MARKER = "hanme store"
"""The first key of a manifest; its value is the version of the format."""

BLOCK = 1 << 16
"""Bytes per checksum: small enough to verify single rows, checksums are 0.006 % of the data."""

VERSION = 3


class ArrayWriter:
    """Append rows to an array file; ``shape`` is that of a row."""

    def __init__(self, file: BinaryIO, dtype: str, shape: tuple[int, ...] = ()) -> None:
        self.file, self.dtype, self.shape = file, np.dtype(dtype), shape
        self.rows = 0
        self.checksums: list[int] = []
        self._filled = 0  # bytes in the last block

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows at the end."""
        rows = np.ascontiguousarray(rows, self.dtype)
        self.rows += len(rows)
        rest = rows.reshape(-1).view(np.uint8).data
        self.file.write(rest)
        while len(rest):
            part, rest = rest[: BLOCK - self._filled], rest[BLOCK - self._filled :]
            before = self.checksums.pop() if self._filled else 0
            self.checksums.append(zlib.crc32(part, before))
            self._filled = (self._filled + len(part)) % BLOCK


class StoreWriter:
    """Write the files of a store into a folder; it opens once :meth:`finish` has been called.

    Attributes:
        arrays: The arrays written so far, by name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrays: dict[str, MappedArray] = {}

    @contextmanager
    def array(self, name: str, dtype: str, shape: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
        """Open an array for writing."""
        path = self.folder / f"{name}.bin"
        with path.open("wb") as file:
            writer = ArrayWriter(file, dtype, shape)
            yield writer
            file.flush()
            os.fsync(file.fileno())
        checksums = np.array(writer.checksums, np.uint32)
        self.arrays[name] = MappedArray(path, dtype, [writer.rows, *shape], checksums)

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Write a whole array."""
        with self.array(name, array.dtype.name, array.shape[1:]) as writer:
            writer.append(array)

    def finish(self, header: dict[str, Any]) -> None:
        """Write the checksums and then the manifest."""
        checksums = np.concatenate([array.checksums for array in self.arrays.values()]).tobytes()
        with (self.folder / CHECKSUMS).open("wb") as file:
            file.write(checksums)
            os.fsync(file.fileno())
        files = [
            {"name": name, "dtype": array.dtype, "shape": array.shape}
            for name, array in self.arrays.items()
        ]
        manifest = {MARKER: VERSION, **header, "files": files, "checksums": zlib.crc32(checksums)}
        write_json(self.folder / MANIFEST, manifest)


class MappedArray:
    """An array in a file, mapped into memory; each block is verified before it is first read."""

    def __init__(
        self, path: Path, dtype: str, shape: list[int], checksums: NDArray[np.uint32]
    ) -> None:
        self.path, self.dtype, self.checksums = path, dtype, checksums
        flat = torch.empty(0, dtype=getattr(torch, dtype))
        if math.prod(shape):
            with path.open("rb") as file:
                flat = mapped(file.fileno(), flat.dtype)
        self._tensor = flat.view(shape)
        self._bytes = flat.view(torch.uint8).numpy().data
        self._verified = np.zeros(len(checksums), np.bool_)
        self._bounds: tuple[int, int, bool] | None = None
        self._row_bytes = flat.element_size() * math.prod(shape[1:])

    def __len__(self) -> int:
        return self._tensor.size(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self._tensor.shape)

    def require(self, low: int, high: int, *, ascending: bool = False) -> None:
        """Refuse numbers outside of ``[low, high)`` when they are read.

        With ``ascending``, also those that do not ascend from ``low`` to ``high - 1``.
        """
        self._bounds = low, high, ascending

    def all(self) -> Tensor:
        """Return the whole array, verified."""
        self._verify(np.arange(len(self.checksums)))
        return self._tensor

    def rows(self, numbers: Tensor) -> Tensor:
        """Return some rows; only their blocks are read."""
        if not self._verified.all() and self._row_bytes:
            first = numbers * self._row_bytes // BLOCK
            last = ((numbers + 1) * self._row_bytes - 1) // BLOCK
            self._verify(concat_ranges(first, last - first + 1)[0].numpy())
        return self._tensor.index_select(0, numbers)

    def _verify(self, blocks: NDArray[np.int64]) -> None:
        for block in np.unique(blocks[~self._verified[blocks]]).tolist():
            begin = block * BLOCK
            intact = zlib.crc32(self._bytes[begin : begin + BLOCK]) == self.checksums[block]
            if not intact or not self._within_bounds(block):
                raise HanmeError(f"{self.path}: damaged from byte {begin:,}; store the graph again")
            self._verified[block] = True

    def _within_bounds(self, block: int) -> bool:
        if self._bounds is None:
            return True
        low, high, ascending = self._bounds
        size = BLOCK // self._tensor.element_size()
        numbers = self._tensor.view(-1)[block * size : (block + 1) * size + int(ascending)].numpy()
        within = low <= int(numbers.min()) and int(numbers.max()) < high
        if within and ascending:
            first = block > 0 or numbers[0] == low
            last = block < len(self.checksums) - 1 or numbers[-1] == high - 1
            return bool(first and last and (np.diff(numbers) >= 0).all())
        return within


def map_arrays(
    folder: Path, entries: list[dict[str, Any]], checksums: int
) -> dict[str, MappedArray]:
    """Map the arrays of a store; sizes are compared, and no data is read."""
    path = folder / CHECKSUMS
    sums = np.zeros(0, np.uint32) if not path.exists() else np.fromfile(path, np.uint32)
    if zlib.crc32(sums.tobytes()) != checksums:
        raise HanmeError(f"{path}: damaged or missing; store the graph again")
    arrays, used = {}, 0
    for entry in entries:
        path = folder / f"{entry['name']}.bin"
        expected = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
        size = path.stat().st_size if path.exists() else 0
        if size != expected or not path.exists():
            raise HanmeError(
                f"{path}: {size:,} bytes instead of {expected:,}; store the graph again"
            )
        blocks = -(-size // BLOCK)
        arrays[entry["name"]] = MappedArray(
            path, entry["dtype"], entry["shape"], sums[used : used + blocks]
        )
        used += blocks
    if used != len(sums):
        raise HanmeError(f"{folder / CHECKSUMS}: not one per block; store the graph again")
    return arrays
