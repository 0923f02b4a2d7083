"""Write files that are either whole or absent, and lock folders against other processes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hanme.common.options import refuse_deep
from hanme.errors import HanmeError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors that the system reports without naming a file: a full disk, a damaged one."""

GRACE = 0.5
"""Seconds for which :func:`lock` waits: :func:`is_locked` holds the lock for a moment."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to, and move it to ``path`` if nothing was raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem[:100]}.{uuid4().hex}{path.suffix}")
    try:
        with name_path(path, temporary):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the disk; Windows has no such call."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in FULL:  # others mean that the file system cannot sync a folder
            raise
    finally:
        os.close(handle)


def remove_leftovers(folder: Path, stem: str = "") -> None:
    """Remove what a kill in the middle of a context above has left in a folder, or of one file."""
    name = re.escape(stem[:100]) if stem else ".+"
    for left in folder.glob(".*"):
        if re.fullmatch(rf"\.{name}\.[0-9a-f]{{32}}(\.\w+)?", left.name) is None:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


@contextmanager
def name_path(path: Path, *also: Path) -> Iterator[None]:
    """Add the path to an error of the system that names no file, or a temporary one in ``also``."""
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        name = error.filename if isinstance(error, OSError) else None
        if number is None and os.strerror(errno.ENOSPC) in str(error):  # DuckDB
            number = errno.ENOSPC
        if number and (number in FULL if name is None else name in map(str, also)):
            raise OSError(number, os.strerror(number), str(path)) from None
        raise


def whole(path: str | os.PathLike[str]) -> Path:
    """Return a path from the root on, with ``~`` and symbolic links followed."""
    try:
        return Path(path).expanduser().resolve()
    except (RuntimeError, OSError, ValueError) as error:  # nobody's home, a loop of links
        raise HanmeError(f"{path}: not the path of a file ({error})") from None


def regular(path: Path) -> Path:
    """Return the path of a file to read; refuse a pipe or a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise HanmeError(f"{path}: it is a pipe or a device; name a file")
    return path


@contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock on a file while working on ``what``; raise if another process holds it.

    The lock is released when the process exits, even if it is killed. In the end, its folder is
    removed if it is new and empty.
    """
    new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(path)
    try:
        held.acquire(timeout=GRACE)
    except Timeout:
        raise HanmeError(f"{what}: another process is working on it") from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows keeps a file that is open
            path.unlink(missing_ok=True)
            if new:
                path.parent.rmdir()
        held.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file."""
    if not path.exists():
        return False
    held = FileLock(path)
    try:
        held.acquire(timeout=0)
    except Timeout:
        return True
    held.release()
    return False


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as indented JSON, with a checksum of them."""
    signed = {**values, "sha256": _digest(json.loads(json.dumps(values)))}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(signed, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read what :func:`write_json` wrote; refuse what has changed since."""
    regular(path)
    try:
        values = parse_json(path.read_bytes())
        if not isinstance(values, dict):
            raise ValueError(f"expected {{, but got {type(values).__name__}")
    except (OSError, ValueError) as error:
        raise HanmeError(f"{path}: not a JSON file of a run ({error})") from None
    if "sha256" in values and values.pop("sha256") != _digest(values):
        raise HanmeError(
            f"{path}: it has changed since it was written; restore it from a copy, train again, or "
            "remove its line sha256 to use it as it is"
        )
    return values


def checksum(path: Path) -> str | None:
    """Return the checksum that a file of a run carries; None if it cannot be read.

    A ``.jsonl`` file carries none: return that of its bytes.
    """
    regular(path)
    try:
        if path.suffix == ".jsonl":
            return sha256(path.read_bytes()).hexdigest()
        if path.suffix == ".json":
            found = parse_json(path.read_bytes())
        else:
            with safe_open(path, framework="pt") as file:
                found = parse_json(file.metadata()["numbers"])
        return str(found["sha256"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; one that cannot be read raises ValueError."""
    try:
        value = json.loads(text)
        refuse_deep(value, "JSON")
        return value
    except (RecursionError, HanmeError):
        raise ValueError("values are nested too deep") from None


def _digest(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def save_tensors(path: Path, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Write tensors and a few numbers into one safetensors file, with a checksum of them."""
    # In one entry: safetensors writes several in any order, but the same run gives the same file.
    signed = {**numbers, "sha256": _tensors_digest(tensors, numbers)}
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors, metadata={"numbers": json.dumps(signed)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Read what :func:`save_tensors` wrote; refuse what has changed since."""
    regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            numbers = parse_json(file.metadata()["numbers"])
        if not isinstance(numbers, dict):
            raise ValueError("its numbers have no names")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise HanmeError(f"{path}: not a whole safetensors file of a run ({error})") from None
    digest = numbers.pop("sha256", None)
    if digest != _tensors_digest(tensors, numbers):
        raise HanmeError(
            f"{path}: it has changed since it was written; restore it from a copy, or remove it "
            "and continue with --resume"
        )
    return tensors, numbers


def _tensors_digest(tensors: Mapping[str, Tensor], numbers: Mapping[str, float]) -> str:
    digest = sha256(json.dumps(numbers, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
