import errno
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from hanme.common import memory
from hanme.common.memory import give_back, mapped, matrix, peak_mb, used_mb


def test_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    used = resource.struct_rusage((0.0, 0.0, 3 * 2**20, *[0] * 13))
    monkeypatch.setattr(resource, "getrusage", lambda who: used)
    for platform, mb in (("linux", 3 * 1024), ("darwin", 3)):
        monkeypatch.setattr(sys, "platform", platform)
        assert peak_mb() == mb
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert peak_mb() == 0


def test_a_large_matrix_is_in_a_file_without_a_name_or_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "posix_fallocate", raising=False)  # as on macOS
    filled = matrix(30, 20)
    filled[:] = 2
    assert float(filled.sum()) == 1200
    assert not list(tmp_path.iterdir())
    usage = shutil.disk_usage(tmp_path)._replace(free=2399)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        matrix(30, 20)


def test_pages_are_given_back_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = torch.arange(100_000)
    (tmp_path / "numbers").write_bytes(numbers.numpy().tobytes())
    with (tmp_path / "numbers").open("rb") as file:
        stored = mapped(file.fileno(), torch.int64)
    monkeypatch.setattr(memory, "LARGE", 1)
    filled = matrix(300, 200)
    filled.copy_(torch.arange(60_000).view(300, 200))
    assert torch.equal(stored, numbers)
    before = used_mb(pages=True)
    give_back(before + 1000)
    assert used_mb(pages=True) >= before
    give_back()
    if sys.platform == "linux":
        assert used_mb(pages=True) < before
    assert torch.equal(stored, numbers)
    assert torch.equal(filled.flatten(), torch.arange(60_000.0))
