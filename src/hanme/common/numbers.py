"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count


def untaken(name: str, taken: Collection[str], before: str = "_") -> str:
    """Return a name, followed by a number from 2 on if it is taken already."""
    names = chain([name], (f"{name}{before}{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def short(count: float) -> str:
    """Write a count as 12,345 or, from a million on, as 3.9 M or 394 M."""
    if count < 1e6:
        return f"{count:,.0f}"
    for unit, size in (("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)):
        if count < 999.5 * size:
            return _digits(count / size, unit)
    return _digits(count / 1e18, "E")


def lasting(seconds: float) -> str:
    """Write a time as 0.07 s, 1.2 s, 25 s, 3 min or 2 h."""
    for unit, size in (("h", 3600), ("min", 120)):
        if seconds >= size:
            return f"{seconds / (60 if unit == 'min' else size):.0f} {unit}"
    return f"{seconds:.{0 if seconds >= 9.95 else 1 if seconds >= 0.95 else 2}f} s"


def _digits(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
