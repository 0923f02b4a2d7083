"""Files that are written whole or not at all, and locks."""

import os
import stat
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from filelock import FileLock

from hanme.common.files import (
    is_locked,
    load_tensors,
    lock,
    read_json,
    remove_leftovers,
    replacing,
    save_tensors,
    write_json,
)
from hanme.errors import HanmeError


def test_a_file_is_replaced_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "in" / "x.txt"
    with replacing(path) as temporary:
        assert temporary.suffix == ".txt"
        temporary.write_text("one")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"tw{1 / 0}")
    assert [(p.name, p.read_text()) for p in path.parent.iterdir()] == [("x.txt", "one")]


def test_a_lock_is_held_by_one_and_left_by_none(tmp_path: Path) -> None:
    path = tmp_path / "in" / ".lock"
    with lock(path, "the run"):
        with (
            pytest.raises(HanmeError, match=r"^the run: another process"),
            lock(path, "the run"),
        ):
            pass
        assert path.exists()
    assert not path.exists()
    with lock(path, "the run"):
        pass


def test_json_and_tensors(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": [1, None]})
    assert read_json(tmp_path / "a.json") == {"x": [1, None]}
    tensors, numbers = {"w": torch.eye(2)}, {"epoch": 3.0}
    save_tensors(tmp_path / "a.safetensors", tensors, numbers)
    found, back = load_tensors(tmp_path / "a.safetensors")
    assert torch.equal(found["w"], tensors["w"])
    assert back == numbers
    assert os.stat(tmp_path / "a.safetensors").st_mode == os.stat(tmp_path / "a.json").st_mode
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(HanmeError, match=r"b\.json: not a JSON file of a run"):
        read_json(tmp_path / "b.json")
    with pytest.raises(HanmeError, match=r"b\.json: not a whole safetensors file of a run"):
        load_tensors(tmp_path / "b.json")


def synced_folders(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return a list that grows with the names in each folder that is synced."""
    found, fsync = list[set[str]](), os.fsync

    def record(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            found.append({name for name in os.listdir(handle) if not name.startswith(".")})
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    return found


def test_the_name_of_a_new_file_is_on_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_folders(monkeypatch)
    with replacing(tmp_path / "x.txt") as temporary:
        temporary.write_text("one")
    assert synced == [{"x.txt"}]


def test_what_is_left_of_one_file_is_removed_but_not_of_another(tmp_path: Path) -> None:
    end = uuid4().hex
    names = [f".data.{end}", f".data.v2.{end}", f".data.v2.{end}.json", f".data2.{end}", "data.x"]
    for name in (*names, f".data.{end}.json"):
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path, "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data.x"]


def test_a_lock_that_is_only_tested_can_be_taken(tmp_path: Path) -> None:
    path, tested = tmp_path / ".lock", threading.Event()

    def test() -> None:  # as `is_locked` does, but for longer
        with FileLock(path):
            tested.set()
            time.sleep(0.1)

    thread = threading.Thread(target=test)
    thread.start()
    tested.wait()
    with lock(path, "the run"):
        assert is_locked(path)
    thread.join()
    assert not is_locked(path)
