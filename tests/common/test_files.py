"""Files that are written whole or not at all, and locks."""

import os
from pathlib import Path

import pytest
import torch

from hanme.common.files import (
    load_tensors,
    lock,
    read_json,
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
