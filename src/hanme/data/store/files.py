"""The files of a store: flat arrays, a checksum per block of each, and a manifest.

``manifest.json`` is written last and names every file with its size, so that a store that is not
whole does not open. ``checksums.bin`` has a CRC-32 of every block of 64 KiB. Opening passes over
no data: a block is checked when a number of it is first read, and a file that is asked for as a
whole is checked as a whole.
"""

from __future__ import annotations

import json
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

from hanme.common.csr import stretches
from hanme.common.files import write_json
from hanme.common.memory import mapped
from hanme.errors import HanmeError

MANIFEST, CHECKSUMS = "manifest.json", "checksums.bin"
BLOCK = 1 << 16
VERSION = 2


class Column:
    """An array that is being written, some rows after the others; ``shape`` is that of a row."""

    def __init__(self, file: BinaryIO, dtype: str, shape: tuple[int, ...] = ()) -> None:
        self.file, self.dtype, self.shape = file, np.dtype(dtype), shape
        self.rows = 0
        self.checksums: list[int] = []
        self._filled = 0

    def append(self, rows: NDArray[Any]) -> None:
        """Write some rows."""
        rows = np.ascontiguousarray(rows, self.dtype)
        self.rows += len(rows)
        left = rows.reshape(-1).view(np.uint8).data
        self.file.write(left)
        while len(left):
            part, left = left[: BLOCK - self._filled], left[BLOCK - self._filled :]
            before = self.checksums.pop() if self._filled else 0
            self.checksums.append(zlib.crc32(part, before))
            self._filled = (self._filled + len(part)) % BLOCK


class Writer:
    """Write the files of a store into a folder; it opens once :meth:`finish` has been called.

    What has been written is at once in ``mapped``, by name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mapped: dict[str, Mapped] = {}

    @contextmanager
    def column(self, name: str, dtype: str, shape: tuple[int, ...] = ()) -> Iterator[Column]:
        """Open an array to write."""
        with (self.folder / f"{name}.bin").open("wb") as file:
            column = Column(file, dtype, shape)
            yield column
            file.flush()
            os.fsync(file.fileno())
        path = self.folder / f"{name}.bin"
        sums = np.array(column.checksums, np.uint32)
        self.mapped[name] = Mapped(path, dtype, [column.rows, *shape], sums)

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Write a whole array."""
        with self.column(name, array.dtype.name, array.shape[1:]) as column:
            column.append(array)

    def finish(self, header: dict[str, Any]) -> None:
        """Write the checksums and, last of all, the manifest."""
        sums = np.concatenate([file.checksums for file in self.mapped.values()])
        entries = [
            {"name": name, "dtype": file.dtype, "shape": file.shape}
            for name, file in self.mapped.items()
        ]
        with (self.folder / CHECKSUMS).open("wb") as file:
            file.write(sums.tobytes())
            os.fsync(file.fileno())
        manifest = {"hanme store": VERSION, **header, "files": entries}
        manifest["checksums"] = zlib.crc32(sums.tobytes())
        write_json(self.folder / MANIFEST, manifest | {"checksum": checksum_of(manifest)})


class Mapped:
    """An array in a file, mapped into memory; what is read is checked, block by block, first."""

    def __init__(
        self, path: Path, dtype: str, shape: list[int], checksums: NDArray[np.uint32]
    ) -> None:
        self.path, self.dtype, self.checksums = path, dtype, checksums
        kind = getattr(torch, dtype)
        size = math.prod(shape)
        flat = torch.empty(0, dtype=kind)
        if size:
            with path.open("rb") as file:
                flat = mapped(file.fileno(), kind)
        self._tensor = flat.view(shape)
        self._bytes = flat.view(torch.uint8).numpy().data
        self._checked = np.zeros(len(checksums), np.bool_)
        self._bounds: tuple[int, int, bool] | None = None
        self._width = flat.element_size() * math.prod(shape[1:])

    def __len__(self) -> int:
        return self._tensor.size(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self._tensor.shape)

    def bound(self, least: int, below: int, *, rising: bool) -> None:
        """Say which numbers may be in it, and whether they rise from the least to the largest."""
        self._bounds = least, below, rising

    def whole(self) -> Tensor:
        """Return the array; the first time, all of it is checked."""
        self._check(np.arange(len(self.checksums)))
        return self._tensor

    def rows(self, numbers: Tensor) -> Tensor:
        """Return some rows; only the blocks that they are in are read."""
        if not self._checked.all() and self._width:
            first = numbers * self._width // BLOCK
            last = ((numbers + 1) * self._width - 1) // BLOCK
            self._check(stretches(first, last - first + 1)[0].numpy())
        return self._tensor.index_select(0, numbers)

    def _check(self, blocks: NDArray[np.int64]) -> None:
        for block in np.unique(blocks[~self._checked[blocks]]).tolist():
            begin = block * BLOCK
            same = zlib.crc32(self._bytes[begin : begin + BLOCK]) == self.checksums[block]
            if not same or not self._bounded(block):
                raise HanmeError(
                    f"{self.path}: it is damaged: bytes {begin:,} to "
                    f"{min(begin + BLOCK, len(self._bytes)) - 1:,} are not what hanme store wrote; "
                    "store the graph again"
                )
            self._checked[block] = True

    def _bounded(self, block: int) -> bool:
        """Return whether the numbers of a block are within bounds, whoever wrote them."""
        if self._bounds is None:
            return True
        least, below, rising = self._bounds
        size = BLOCK // self._tensor.element_size()
        numbers = self._tensor.view(-1)[block * size : (block + 1) * size + int(rising)].numpy()
        within = least <= int(numbers.min()) and int(numbers.max()) < below
        if within and rising:
            begins = block > 0 or numbers[0] == least
            ends = block < len(self.checksums) - 1 or numbers[-1] == below - 1
            return bool(begins and ends and (np.diff(numbers) >= 0).all())
        return within


def map_files(folder: Path, entries: list[dict[str, Any]], checksums: int) -> dict[str, Mapped]:
    """Map the files of a store; sizes are compared, and no data is read."""
    path = folder / CHECKSUMS
    sums = np.fromfile(path, np.uint32) if path.exists() else np.zeros(0, np.uint32)
    if zlib.crc32(sums.tobytes()) != checksums:
        raise HanmeError(f"{path}: it is damaged or missing; store the graph again")
    found, used = {}, 0
    for entry in entries:
        path = folder / f"{entry['name']}.bin"
        size = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
        there = path.stat().st_size if path.exists() else None
        if there != size:
            what = "it is missing" if there is None else f"{there:,} bytes, but it had {size:,}"
            raise HanmeError(f"{path}: {what}; store the graph again")
        blocks = -(-size // BLOCK)
        found[entry["name"]] = Mapped(
            path, entry["dtype"], entry["shape"], sums[used : used + blocks]
        )
        used += blocks
    if used != len(sums):
        raise HanmeError(f"{folder / CHECKSUMS}: not one of each block; store the graph again")
    return found


def checksum_of(manifest: dict[str, Any]) -> int:
    """Return the checksum that a manifest carries of all that is in it."""
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
