"""Keep graphs that were built from files, as stores in the cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from hanme import __version__
from hanme.data.store.open import open_store
from hanme.data.store.write import write_store
from hanme.errors import HanmeError
from hanme.graph import Graph

HASHED = 1 << 26
"""Largest file whose content is hashed at every start: 64 MB take a tenth of a second."""


@dataclass(frozen=True)
class StoreCache:
    """The cached graphs of one data source; those with another key are removed."""

    folder: Path
    key: str  # what the graphs were built from, see :func:`content_key`

    def path(self, variant: str) -> Path:
        """Return the folder of a graph: built from the same files, but with other options."""
        return self.folder / f"{self.key}-{variant}"

    def read(self, variant: str, *, mapped: bool = False) -> Graph | None:
        """Read or map a graph; return None if it is not cached or damaged."""
        try:
            return open_store(self.path(variant), mapped=mapped)
        except (HanmeError, OSError):
            return None

    def clear(self, variant: str) -> None:
        """Remove a graph that cannot be read, and those with another key."""
        for path in self.folder.glob("*-*"):
            if path == self.path(variant) or not path.name.startswith(self.key):
                shutil.rmtree(path, ignore_errors=True)

    def keep(self, variant: str, graph: Graph) -> Graph:
        """Write a graph and read it back, so that the first start computes what later ones do."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock"):
                if (kept := self.read(variant)) is not None:  # written by another process
                    return kept
                self.clear(variant)
                write_store(graph, self.path(variant), features="given")
        except OSError as error:
            text = f"{self.folder} cannot be written, so the next start is slow: {error}"
            warnings.warn(text, stacklevel=3)
        return self.read(variant) or graph


def content_key(paths: Iterable[Path], *texts: str) -> str:
    """Return a hash that changes with the content of a file, with a text, or with the release.

    Of a file above ``HASHED`` bytes, the inode and the time of its last status change are used,
    which no program can set; Windows has neither.
    """
    digest = hashlib.blake2b(digest_size=16)
    for text in (__version__, *texts):
        digest.update(f"{len(text)} {text}".encode("utf-8", "surrogatepass"))
    for path in paths:
        stat = path.stat()
        stamps = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        hashed = stat.st_size <= HASHED or os.name == "nt"
        digest.update(f"\0{path} {stat.st_size if hashed else stamps}".encode(errors="replace"))
        if hashed:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()
