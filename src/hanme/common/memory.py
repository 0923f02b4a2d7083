"""Measure how much memory this process has taken."""

from __future__ import annotations

import sys


def peak_mb() -> float:
    """Return the most memory taken so far, in MB; 0 where the system does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return 0.0
    return in_mb(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def in_mb(ru_maxrss: int) -> float:
    """Convert what the system calls ``ru_maxrss``: bytes on macOS, kilobytes elsewhere."""
    return ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
