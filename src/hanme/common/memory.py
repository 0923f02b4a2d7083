"""Measure how much memory this process has taken, and keep large arrays out of it."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

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
    """Make a matrix of float32 to fill: in memory, or mapped from a temporary file if it is large.

    The file has no name, and is gone with the tensor.
    """
    size = rows * columns
    if size <= LARGE:
        return torch.empty(rows, columns)
    handle, path = tempfile.mkstemp(prefix="hanme-")
    try:
        os.posix_fallocate(handle, 0, 4 * size)
        return mapped(handle, torch.float32, mmap.ACCESS_WRITE).view(rows, columns)
    finally:
        os.close(handle)
        os.unlink(path)


def mapped(handle: int, dtype: torch.dtype, access: int = mmap.ACCESS_COPY) -> Tensor:
    """Return the numbers of an open file, which is not empty, mapped from it.

    With ``ACCESS_COPY`` processes share the pages, and none can change the file. The tensor is to
    be read alone: what is written into it is lost with the next :func:`give_back`.
    """
    found = mmap.mmap(handle, 0, access=access)
    _maps.add(found)
    return torch.frombuffer(found, dtype=dtype)


def give_back(beyond_mb: float = 0.0) -> None:
    """Give the pages of mapped files back to the system if they take more than ``beyond_mb`` MB."""
    if hasattr(mmap, "MADV_DONTNEED") and pages_mb() > beyond_mb:
        for found in list(_maps):
            found.madvise(mmap.MADV_DONTNEED)


def peak_mb() -> float:
    """Return the most memory taken so far, in MB; 0 where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return 0.0
    return in_mb(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def resident_mb() -> float:
    """Return the memory taken at present, in MB; the most so far where the system does not say."""
    return _statm(1)


def pages_mb() -> float:
    """Return how much of that are pages of files; all of it where the system does not say."""
    return _statm(2)


def _statm(field: int) -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[field])
    except (OSError, ValueError):
        return peak_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def in_mb(ru_maxrss: int) -> float:
    """Convert what the system calls ``ru_maxrss``: bytes on macOS, kilobytes elsewhere."""
    return ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
