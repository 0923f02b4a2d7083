"""Find, download and check the benchmark's files."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import shutil
import urllib.parse
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from hanme.common.files import replacing, whole
from hanme.data.hgb.info import FILES
from hanme.errors import HanmeError

NAMES = ("IMDB", "ACM", "DBLP", "Freebase")

URL = "https://cloud.tsinghua.edu.cn/d/a2728e52cd4943efa389/files/?p=%2F{name}.zip&dl=1"

SHA256 = {
    "IMDB": {
        "info.dat": "02ab539285f2d3ec3ed57c75c1b20d457f9097e6acbdd30a602b4346ddec78d5",
        "node.dat": "863bfb675c978ba6caaf208a747eb4cdc72ecefa992bd198d3baf267728fb726",
        "link.dat": "ee417344ed4486b65c416c12a0ca8848fda3b99f90d372df61fcbe0f881cba3c",
        "label.dat": "51c78600da7d1f8152b707b2e000939d1deb814d99efc7c05dec5bb88924ba9c",
        "label.dat.test": "0d810cdb407c8b1269cf13fa179ca2a88a09e88beb631695427558fede1b967b",
    },
    "ACM": {
        "info.dat": "552ee190fcf2faca1da5dfb168cb5071cfe91e2c46fa6827da4f7f00ba740fda",
        "node.dat": "a68556ff5862e60294074814626dfbb05360cedc3ba849f47fabef1c31d2baad",
        "link.dat": "4744248dc42a722defc8e50db9247117f2f44d7290b6c29f59a6ffe250cf944f",
        "label.dat": "5b833a59cf52bde5e9312eee25f26f9b8ea95a44066bfbfa097a8eed7af3dee0",
        "label.dat.test": "9527d446ad8752005b7a98e323c4866cb78ce2f766bd2cc5a78f8aa3849d5cc7",
    },
    "DBLP": {
        "info.dat": "e753dd47bc365c10d632fb48cee5cfe550df2061cb2e11f32396667b2cd22287",
        "node.dat": "bf3d9462437f7d4994b09995525665b783454d1cc91b39876ae51f9dfdd0cb47",
        "link.dat": "e6f163bf6d1f8c10fab7ad5ce9cc79629570449be815c28405c255220c95c902",
        "label.dat": "5f5fd3841ef1ad99de706ac3399e1439b0cb81818bd3d951653c11ac0e94d589",
        "label.dat.test": "809c0c5483d14d832f935996015699907b8855f21ef4e9c8eed0300dd19eeedc",
    },
}
"""The hash of every file's content, to check a download."""

LONGEST = 1 << 24
"""No line of the benchmark has so many bytes; one that has would fill the memory."""

TRAP = "label.dat.test_full"
SCRAMBLED = (
    "the labels in that file were deliberately scrambled; "
    "archives of March 2023 and later have the true ones of the whole test set in label.dat.test"
)

_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)


class Files:
    """The benchmark's files of one graph, in an archive or in a folder.

    Args:
        path: The archive, or the folder that holds the files.
        name: The graph's name; an archive of several graphs has its files in a folder of that name.
        title: What messages call it, by default the name of `path`.
    """

    def __init__(self, path: Path, name: str, title: str | None = None) -> None:
        self.path = path
        self.title = title or path.absolute().name
        self._members = None if path.is_dir() else self._list(name)
        if self._has(TRAP):
            raise HanmeError(f"{self.title}: refused because of its {TRAP}: {SCRAMBLED}")
        if missing := [file for file in FILES if not self._has(file)]:
            raise HanmeError(
                f"{self.title}: {' and '.join(missing)} missing; a graph is {', '.join(FILES)}"
            )

    def lines(self, file: str) -> Iterator[bytes]:
        """Yield the lines of one file with their line ends, without extracting it."""
        with self._reading(file), ExitStack() as stack:
            if self._members is None:
                opened: IO[bytes] = stack.enter_context((self.path / file).open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                member = stack.enter_context(archive.open(self._members[file]))
                opened = io.BufferedReader(cast(io.RawIOBase, member), 1 << 20)
            while line := opened.readline(LONGEST):
                if len(line) == LONGEST:
                    raise ValueError(f"a line is longer than {LONGEST:,} bytes")
                yield line

    def fingerprint(self) -> str:
        """Return a text that changes when a file does."""
        if self._members is None:
            stats = {file: (self.path / file).stat() for file in FILES}
            parts = [f"{file} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats.items()]
            return "; ".join(["folder", *parts])
        members = {file: self._members[file] for file in FILES}
        parts = [f"{file} {info.file_size} {info.CRC:08x}" for file, info in members.items()]
        return "; ".join([f"archive {self.path.stat().st_size}", *parts])

    def _has(self, file: str) -> bool:
        if self._members is None:
            return (self.path / file).is_file()
        return file in self._members

    def _list(self, name: str) -> dict[str, zipfile.ZipInfo]:
        with self._reading(), zipfile.ZipFile(self.path) as archive:
            paths = {PurePosixPath(info.filename): info for info in archive.infolist()}
        members: dict[str, zipfile.ZipInfo] = {}
        for file in (*FILES, TRAP):
            same = [path for path in paths if path.name == file]
            # An archive of several graphs has a folder for each.
            same = [path for path in same if path.parent.name == name] or same
            if len(same) > 1:
                raise HanmeError(f"{self.title}: {file} is there {len(same)} times; expected once")
            if same:
                members[file] = paths[same[0]]
        return members

    @contextmanager
    def _reading(self, file: str | None = None) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            place = f"{self.title}: {file}" if file else self.title
            raise HanmeError(
                f"{place} cannot be read, damaged or cut off ({error}); get it again"
            ) from error


def find(folder: Path, name: str, source: str | os.PathLike[str] | None) -> Files | None:
    """Find a graph's files at `source`, in ``HANME_DATA``, or downloaded into `folder` before."""
    if source is not None:
        if files := _look(whole(source), name):
            return files
        raise HanmeError(
            f"{source}: nothing found for {name}; looked for an archive {name}.zip, "
            f"a folder {name} or these in a folder hgb, and for node.dat"
        )
    for place in (os.environ.get("HANME_DATA"), folder / f"{name}.zip"):
        if place and (files := _look(whole(place), name)):
            return files
    return None


def _look(path: Path, name: str) -> Files | None:
    places = [p / file for p in (path, path / "hgb") for file in (f"{name}.zip", name)]
    if path.stem not in NAMES or path.stem == name:  # ACM.zip is no source of IMDB
        places.append(path)
    for place in places:
        if place.is_file() or any((place / file).is_file() for file in FILES):
            return Files(place, name)
    return None


def download(destination: Path, name: str) -> None:
    """Download a graph's archive, check it, and move it into place only when it is whole."""
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
            files = Files(part, name, title=destination.name)
            _verify(files, name, destination.with_suffix(".sha256"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HanmeError(
            f"{name} could not be downloaded from {url} ({error}): {by_hand(name)}"
        ) from error


def _refuse_plain(url: str) -> None:
    """Refuse a download that others could change on its way; this machine may serve its own."""
    parts = urllib.parse.urlsplit(url)
    own = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not own:
        raise ValueError(f"{url}: only https is allowed")


class _Redirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any, **named: Any) -> Any:
        _refuse_plain(given[-1])
        return super().redirect_request(*given, **named)


def _verify(files: Files, name: str, noted: Path) -> None:
    """Compare a download with the hashes of the benchmark's files.

    Nobody has published those of Freebase: its first download is noted, and later ones compared
    with it.
    """
    found = {file: _hash(files, file) for file in FILES}
    if name not in SHA256 and not noted.exists():
        with replacing(noted) as path:
            path.write_text(json.dumps(found, indent=2) + "\n")
        warnings.warn(
            f"{name}: its hashes are not published; those of this download are kept in {noted}, "
            "and later downloads must have the same",
            stacklevel=4,
        )
    known = SHA256.get(name) or _noted(noted)
    for file in FILES:
        if found[file] != known.get(file):
            raise HanmeError(f"{files.title}: {file} is not the benchmark's")


def _hash(files: Files, file: str) -> str:
    digest = hashlib.sha256()
    for line in files.lines(file):
        digest.update(line)
    return digest.hexdigest()


def _noted(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        raise HanmeError(f"{path}: not the hashes of a download; remove it") from None


def by_hand(name: str) -> str:
    """Say what to do where a download is not possible."""
    return f"get {name}.zip by hand and pass its path (source=, --data or HANME_DATA)"
