"""Keep graphs that were built from files, as stores in the cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from hanme import __version__
from hanme.common.files import remove_leftovers
from hanme.data.store.open import open_store
from hanme.data.store.write import write_store
from hanme.errors import HanmeError
from hanme.graph import Graph

HASHED = 1 << 26
"""Largest file whose content is hashed at every start: 64 MB take a tenth of a second."""


STORES = "[!.]*-*"
"""Pattern of the names of finished stores; folders that are being written begin with a dot."""

LIMIT = 20 << 30
"""Maximum size of all stores in the cache folder, in bytes: the least recently used ones go first.
The one that was written last stays, whatever its size."""


@dataclass(frozen=True)
class StoreCache:
    """The cached graphs of one data source; those with another key are removed.

    Args:
        root: The cache folder.
        name: The folder of the source in it, such as ``hgb/IMDB``.
        key: What the graphs were built from, see :func:`content_key`.
    """

    root: Path
    name: str
    key: str

    @property
    def folder(self) -> Path:
        """The folder of the source."""
        return self.root / self.name

    def path(self, variant: str) -> Path:
        """Return the folder of a graph: built from the same files, but with other options."""
        return self.folder / f"{self.key}-{variant}"

    def read(self, variant: str, *, mapped: bool = False) -> Graph | None:
        """Read or map a graph; return None if it is not cached or damaged."""
        path = self.path(variant)
        try:
            graph = open_store(path, mapped=mapped)
        except (HanmeError, OSError):
            return None
        with suppress(OSError):
            os.utime(path)  # it was used now
        return graph

    def write(self, variant: str, store: Callable[[Path], None], *, mapped: bool = False) -> Graph:
        """Let ``store`` write a graph into a folder, unless another process has; open it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(variant)
        with FileLock(self.folder / ".lock"):
            if (graph := self.read(variant, mapped=mapped)) is not None:
                return graph
            self._clear(path)
            store(path)
            self._evict(path)
            return open_store(path, mapped=mapped)

    def keep(self, variant: str, graph: Graph) -> Graph:
        """Write a graph and read it back, so that the first start computes what later ones do."""
        try:
            return self.write(variant, lambda path: write_store(graph, path, features="given"))
        except OSError as error:
            text = f"{self.folder} cannot be written, so the next start is slow: {error}"
            warnings.warn(text, stacklevel=3)
        return graph

    def _clear(self, path: Path) -> None:
        """Remove a graph that cannot be read, those with another key, and what kills have left."""
        for other in self.folder.glob(STORES):
            if other == path or not other.name.startswith(self.key):
                shutil.rmtree(other, ignore_errors=True)
        remove_leftovers(self.folder)

    def _evict(self, path: Path) -> None:
        """Remove the stores of all sources that were not used for longest, beyond ``LIMIT``."""
        found = list[tuple[float, int, Path]]()
        for other in self.root.glob(f"*/*/{STORES}"):
            with suppress(OSError):  # another process removes it
                size = sum(file.stat().st_size for file in other.iterdir())
                found.append((other.stat().st_mtime, size, other))
        total = sum(size for _, size, _ in found)
        for _, size, other in sorted(found):
            if total > LIMIT and other != path:
                shutil.rmtree(other, ignore_errors=True)
                total -= size


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
