"""Numbers as people read them."""

from __future__ import annotations


def short(count: float) -> str:
    """Write a count as 12,345 or, from a million on, as 3.9 M or 394 M."""
    if count < 1e6:
        return f"{count:,.0f}"
    for unit, size in (("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)):
        if count < 999.5 * size:
            return _digits(count / size, unit)
    return _digits(count / 1e18, "E")


def _digits(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
