"""Find, download and read the five files of a benchmark graph, in an archive or in a folder."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from hanme.common.files import replacing, whole
from hanme.errors import HanmeError

FILES = ("info.dat", "node.dat", "link.dat", "label.dat", "label.dat.test")

URL = "https://cloud.tsinghua.edu.cn/d/a2728e52cd4943efa389/files/?p=%2F{name}.zip&dl=1"

SHA256 = {
    "IMDB": "5c73d53fd7099b071fa9eb9072d6ac72520504d6e3bf5aa914bb444b4ca96a64",
    "ACM": "b0092df19bc768b47f0cc967e4d151239d3e2b04be2cd8defa73e6b402acf3c8",
    "DBLP": "7ceea2b5a249b78bce8aa37d675ca52f813c75d8d47712244210d4bfeced7330",
}
"""SHA-256 of the contents of the five files, in the order of ``FILES``."""

TEST_NODES = {"IMDB": 3202, "ACM": 2118, "DBLP": 2840}
"""Number of lines of ``label.dat.test``."""

MAX_BYTES = 1 << 30
"""Limit on the unpacked size of a file: five times IMDB's node.dat, the benchmark's largest."""

MAX_RATIO = 400
"""Limit on the compression ratio of a file. IMDB's node.dat has 115, deflated zeros have 1,030."""

SCRAMBLED = (
    "label.dat.test_full, whose labels were deliberately scrambled; archives of March 2023 and "
    "later have the true ones in label.dat.test"
)


def read_files(path: Path, title: str) -> dict[str, bytes]:
    """Return the contents of the five files in an archive or a folder, called `title` in errors."""
    try:
        if path.is_dir():
            _refuse_scrambled(os.listdir(path), title)
            return {file: (path / file).read_bytes() for file in FILES}
        with zipfile.ZipFile(path) as archive:
            _refuse_scrambled(archive.namelist(), title)
            return {file: _unpack(archive, file, title) for file in FILES}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise HanmeError(f"{title} cannot be read, damaged or cut off: {error}") from error


def _refuse_scrambled(names: list[str], title: str) -> None:
    if any(name.endswith("label.dat.test_full") for name in names):
        raise HanmeError(f"{title}: it contains {SCRAMBLED}")


def _unpack(archive: zipfile.ZipFile, file: str, title: str) -> bytes:
    infos = [info for info in archive.infolist() if PurePosixPath(info.filename).name == file]
    if len(infos) != 1:
        raise HanmeError(f"{title}: {len(infos)} files {file}; expected one")
    size, packed = infos[0].file_size, infos[0].compress_size
    if size > min(MAX_BYTES, MAX_RATIO * max(packed, 1 << 10)):
        raise HanmeError(
            f"{title}: {file} unpacks from {packed:,} to {size:,} bytes; "
            "extract it yourself and name the folder if you trust it"
        )
    return archive.read(infos[0])


def is_original(files: dict[str, bytes], name: str) -> bool:
    """Return whether the contents of all files are those of a benchmark graph."""
    digest = hashlib.sha256()
    for file in FILES:
        digest.update(files[file])
    return digest.hexdigest() == SHA256[name]


def find(folder: Path, name: str, source: str | os.PathLike[str] | None) -> Path:
    """Find a graph's files at `source`, else in ``HANME_DATA``, else download them to `folder`."""
    if given := source or os.environ.get("HANME_DATA"):
        path = whole(given)
        places = [p / file for p in (path, path / "hgb") for file in (f"{name}.zip", name)]
        if path.stem not in SHA256 or path.stem == name:  # ACM.zip is no source of IMDB
            places.append(path)
        for place in places:
            if place.is_file() or any((place / file).is_file() for file in FILES):
                return place
    if source:
        raise HanmeError(
            f"{source}: nothing found for {name}; looked for an archive {name}.zip, "
            f"a folder {name} or these in a folder hgb, and for node.dat"
        )
    archive = folder / f"{name}.zip"
    if not archive.exists():
        _download(archive, name)
    return archive


def _download(destination: Path, name: str) -> None:
    """Download a graph's archive, verify it, and move it into place only when it is whole."""
    url = os.environ.get("HANME_HGB_URL", URL).replace("{name}", name)
    try:
        with replacing(destination) as part:
            with urllib.request.urlopen(url, timeout=60) as response:
                part.write_bytes(response.read())
            if not is_original(read_files(part, destination.name), name):
                raise HanmeError("its files are not the benchmark's")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HanmeError(
            f"{name} could not be downloaded from {url} ({error}): download {name}.zip yourself "
            "and pass its path (source=, --data or HANME_DATA)"
        ) from error
