"""The CPUs that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux shows control groups, and those of this process."""


def affinity() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpus(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return the number of cores, or the CPUs that a container's quota allows if these are fewer.

    A quota of 2.5 CPUs allows 2: threads that wait for each other wait for the one that is stopped.
    """
    return max(1, int(min([affinity(), *_quotas(groups, own)])))


def _quotas(groups: Path, own: Path) -> Iterator[float]:
    """Return the quotas of a process's control groups, of versions 1 and 2, and of those above."""
    for line in _text(own).splitlines() or ["0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # A container sees its own group as the root, whatever the path says.
        root, inner = groups / (controllers and "cpu"), Path(path.lstrip("/"))
        for folder in (root / inner, *(root / above for above in inner.parents)):
            limit = _text(folder / "cpu.max").split()  # such as "150000 100000" or "max 100000"
            limit = limit or [
                _text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
            ]
            with suppress(ValueError, ZeroDivisionError):
                quota, period = map(float, limit)
                if quota > 0:
                    yield quota / period


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""
