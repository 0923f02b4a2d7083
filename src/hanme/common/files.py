"""Write files that are either whole or absent, and lock folders against other processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hanme.errors import HanmeError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to, and move it to ``path`` if nothing was raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{uuid4().hex}{path.suffix}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors would let nobody but the owner read it
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def claiming(path: Path, what: str) -> Iterator[None]:
    """Hold a lock while working; raise if another process holds it.

    The lock is released when the process exits, even if it is killed.

    Args:
        path: The file to lock; it is removed afterwards.
        what: What is being worked on, for the message.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise HanmeError(f"{what}: another process is working on it") from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows keeps a file that is open
            path.unlink(missing_ok=True)
        lock.release()


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read what :func:`write_json` wrote."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        return values
    except (OSError, ValueError) as error:
        raise HanmeError(f"{path}: not a JSON file of a run ({error})") from None


def save_tensors(path: Path, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Write tensors and a few numbers into one safetensors file."""
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"numbers": json.dumps(numbers)})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Read what :func:`save_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, json.loads(file.metadata()["numbers"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise HanmeError(f"{path}: not a whole safetensors file of a run ({error})") from None
