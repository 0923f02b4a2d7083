"""Keep graphs that were parsed from files, as stores in the cache folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

HASHED = 1 << 26
"""Largest file whose content is hashed at every start: 64 MB take a tenth of a second."""


def content_key(paths: Iterable[Path], *texts: str) -> str:
    """Return a hash that changes with the content of a file, or with a text.

    Size and modification time alone would miss an edit that restores both. Of a file above
    ``HASHED`` bytes, the inode and the time of its last status change are used, which no program
    can set; Windows has neither.
    """
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
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
