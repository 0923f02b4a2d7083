"""Measure how much memory this process has taken, and keep large arrays out of it."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

BLOCK = 1 << 24
"""Maximum size of a block of a matrix with a row per node: 64 MB as float32."""

LARGE = 1 << 28
"""Size from which a matrix is kept in a temporary file: 1 GB as float32."""

PAGES_MB = 2048
"""Maximum size of mapped pages, in MB, that stay in memory between batches."""

_maps: WeakSet[mmap.mmap] = WeakSet()


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows with at most about ``BLOCK`` numbers each."""
    size = max(1, BLOCK // max(1, columns))
    for begin in range(0, rows, size):
        yield slice(begin, min(begin + size, rows))


def matrix(rows: int, columns: int) -> Tensor:
    """Make a float32 matrix to fill: in memory, or in an unnamed temporary file if it is large."""
    size = rows * columns
    if size <= LARGE:
        return torch.empty(rows, columns)
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < 4 * size:  # a page that cannot be written ends the process
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
    with tempfile.TemporaryFile(prefix="hanme-") as file:
        numbers = np.memmap(file, np.float32, "w+", shape=(rows, columns))
    _maps.add(numbers.base)  # type: ignore[arg-type]
    return torch.from_numpy(numbers)


def mapped(handle: int, dtype: torch.dtype) -> Tensor:
    """Return the numbers of an open file, which is not empty, mapped from it.

    Processes share the pages, and none can change the file. The tensor is to be read alone: what is
    written into it is lost with the next :func:`give_back`.
    """
    found = mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    _maps.add(found)
    return torch.frombuffer(found, dtype=dtype)


def give_back(beyond_mb: float = 0.0) -> None:
    """Give the pages of mapped files back to the system if they take more than ``beyond_mb`` MB."""
    if hasattr(mmap, "MADV_DONTNEED") and used_mb(pages=True) > beyond_mb:
        for found in list(_maps):
            found.madvise(mmap.MADV_DONTNEED)


def peak_mb() -> float:
    """Return the most memory used so far, in MB; 0 on Windows, which does not say."""
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def used_mb(*, pages: bool = False) -> float:
    """Return the memory in use, or that of mapped files, in MB; the peak where it is unknown."""
    try:
        size = int(Path("/proc/self/statm").read_text().split()[2 if pages else 1])
    except (OSError, ValueError):
        return peak_mb()
    return size * os.sysconf("SC_PAGE_SIZE") / 2**20
