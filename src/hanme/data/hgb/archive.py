"""Find, download and open the five files of a benchmark graph, in an archive or in a folder."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import shutil
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from hanme.common.files import replacing, whole
from hanme.errors import HanmeError

NAMES = ("IMDB", "ACM", "DBLP", "Freebase")
FILES = ("info.dat", "node.dat", "link.dat", "label.dat", "label.dat.test")

URL = "https://cloud.tsinghua.edu.cn/d/a2728e52cd4943efa389/files/?p=%2F{name}.zip&dl=1"

SHA256 = {
    "IMDB": "5c73d53fd7099b071fa9eb9072d6ac72520504d6e3bf5aa914bb444b4ca96a64",
    "ACM": "b0092df19bc768b47f0cc967e4d151239d3e2b04be2cd8defa73e6b402acf3c8",
    "DBLP": "7ceea2b5a249b78bce8aa37d675ca52f813c75d8d47712244210d4bfeced7330",
}
"""SHA-256 of the contents of the five files, in the order of ``FILES``. Freebase's is unknown."""

MAX_BYTES = 1 << 30
"""Limit on the unpacked size of an archive: five times IMDB, the largest of the benchmark."""

MAX_RATIO = 400
"""Limit on the compression ratio of a file. IMDB's node.dat has 115, deflated zeros have 1,030."""

SCRAMBLED = "label.dat.test_full"
WHY_SCRAMBLED = (
    "the labels in that file were deliberately scrambled; "
    "archives of March 2023 and later have the true ones of the whole test set in label.dat.test"
)

_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)


class GraphFiles:
    """The files of one graph.

    Args:
        path: An archive, or the folder that contains the files.
        name: The graph's name. An archive of several graphs has a folder for each.
        title: The name of `path` in messages (default: its last part).
    """

    def __init__(self, path: Path, name: str, title: str | None = None) -> None:
        self.path = path
        self.title = title or path.absolute().name
        self._members = None if path.is_dir() else self._list(name)
        if self._has(SCRAMBLED):
            raise HanmeError(f"{self.title}: it contains {SCRAMBLED}: {WHY_SCRAMBLED}")
        if missing := [file for file in FILES if not self._has(file)]:
            raise HanmeError(
                f"{self.title}: {' and '.join(missing)} missing; expected {', '.join(FILES)}"
            )

    @contextmanager
    def open(self, file: str) -> Iterator[IO[bytes]]:
        """Open one of ``FILES``; an archive is not extracted."""
        with self._reading(file):
            if self._members is None:
                with (self.path / file).open("rb") as opened:
                    yield opened
                return
            with zipfile.ZipFile(self.path) as archive, archive.open(self._members[file]) as member:
                yield cast(IO[bytes], io.BufferedReader(cast(io.RawIOBase, member), 1 << 20))

    def sha256(self) -> str:
        """Hash the contents of all files."""
        digest = hashlib.sha256()
        for file in FILES:
            with self.open(file) as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()

    def paths(self) -> list[Path]:
        """Return the files on disk: the archive, or the five files."""
        return [self.path] if self._members else [self.path / file for file in FILES]

    def _has(self, file: str) -> bool:
        return (self.path / file).is_file() if self._members is None else file in self._members

    def _list(self, name: str) -> dict[str, zipfile.ZipInfo]:
        with self._reading(), zipfile.ZipFile(self.path) as archive:
            paths = {PurePosixPath(info.filename): info for info in archive.infolist()}
        members: dict[str, zipfile.ZipInfo] = {}
        for file in (*FILES, SCRAMBLED):
            same = [path for path in paths if path.name == file]
            same = [path for path in same if path.parent.name == name] or same
            if len(same) > 1:
                raise HanmeError(f"{self.title}: {len(same)} files {file}; expected one")
            if same:
                members[file] = paths[same[0]]
        self._refuse_bomb(members)
        return members

    def _refuse_bomb(self, members: dict[str, zipfile.ZipInfo]) -> None:
        """Refuse an archive that unpacks to much more than a graph; zipfile reads no further."""
        total = sum(info.file_size for info in members.values())
        if total > MAX_BYTES:
            raise HanmeError(
                f"{self.title}: it unpacks to {total:,} bytes, more than {MAX_BYTES:,}; "
                "extract it yourself and name the folder if you trust it"
            )
        for file, info in members.items():
            if info.file_size > MAX_RATIO * max(info.compress_size, 1 << 10):
                raise HanmeError(
                    f"{self.title}: {file} is compressed more than {MAX_RATIO}-fold; "
                    "extract it yourself and name the folder if you trust it"
                )

    @contextmanager
    def _reading(self, file: str | None = None) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            place = f"{self.title}: {file}" if file else self.title
            raise HanmeError(
                f"{place} cannot be read, damaged or cut off ({error}); get it again"
            ) from error


def find(folder: Path, name: str, source: str | os.PathLike[str] | None) -> GraphFiles:
    """Find a graph's files at `source`, else in ``HANME_DATA``, else download them to `folder`."""
    if source is not None:
        if files := _look(whole(source), name):
            return files
        raise HanmeError(
            f"{source}: nothing found for {name}; looked for an archive {name}.zip, "
            f"a folder {name} or these in a folder hgb, and for node.dat"
        )
    data = os.environ.get("HANME_DATA")
    if data and (files := _look(whole(data), name)):
        return files
    archive = folder / f"{name}.zip"
    if not archive.exists():
        download(archive, name)
    return GraphFiles(archive, name)


def _look(path: Path, name: str) -> GraphFiles | None:
    places = [p / file for p in (path, path / "hgb") for file in (f"{name}.zip", name)]
    if path.stem not in NAMES or path.stem == name:  # ACM.zip is no source of IMDB
        places.append(path)
    for place in places:
        if place.is_file() or any((place / file).is_file() for file in FILES):
            return GraphFiles(place, name)
    return None


def download(destination: Path, name: str) -> None:
    """Download a graph's archive, verify it, and move it into place only when it is whole."""
    url = os.environ.get("HANME_HGB_URL", URL).replace("{name}", name)
    try:
        with replacing(destination) as part:
            _refuse_plain(url)
            opener = urllib.request.build_opener(_Redirect)
            with opener.open(url, timeout=60) as response, part.open("wb") as file:
                shutil.copyfileobj(response, file)
                size = int(response.headers.get("Content-Length", file.tell()))
                if file.tell() != size:
                    raise HanmeError(f"cut off after {file.tell()} of {size} bytes")
            files = GraphFiles(part, name, title=destination.name)
            if files.sha256() != SHA256.get(name, files.sha256()):
                raise HanmeError(f"{files.title}: its files are not the benchmark's")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HanmeError(
            f"{name} could not be downloaded from {url} ({error}): download {name}.zip yourself "
            "and pass its path (source=, --data or HANME_DATA)"
        ) from error


def _refuse_plain(url: str) -> None:
    """Refuse a download that others could change on its way; this machine may serve its own."""
    parts = urllib.parse.urlsplit(url)
    own = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not own:
        raise ValueError(f"{url}: only https is allowed")


class _Redirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> Any:
        _refuse_plain(args[-1])
        return super().redirect_request(*args, **kwargs)
