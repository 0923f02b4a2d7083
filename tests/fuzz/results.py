"""What must be the same, however often the work that makes it is disturbed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def contents(folder: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    """Return files of a folder by name, without the path of the folder where they hold it."""
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(str(folder).encode(), b"")
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
    }
