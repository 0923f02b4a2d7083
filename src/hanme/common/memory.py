"""Measure how much memory this process has taken."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def peak_mb() -> float:
    """Return the most memory taken so far, in MB; 0 where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return 0.0
    return in_mb(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def resident_mb() -> float:
    """Return the memory taken at present, in MB; the most so far where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return peak_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def in_mb(ru_maxrss: int) -> float:
    """Convert what the system calls ``ru_maxrss``: bytes on macOS, kilobytes elsewhere."""
    return ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
