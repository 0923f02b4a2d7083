"""The device to compute on."""

import pytest
import torch

from hanme.cli import app
from hanme.common import device
from hanme.errors import HanmeError


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device.VARIABLE, "cpu")


def test_a_device_is_taken_for_the_process_and_its_children() -> None:
    assert device.choose("cpu") == "cpu"
    assert device.chosen() == torch.device("cpu")


@pytest.mark.parametrize("name", ["tpu9", "cuda::", ""])
def test_a_device_that_is_none_is_named(name: str) -> None:
    with pytest.raises(HanmeError, match="name one such as cpu, cuda"):
        device.choose(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests what is said without a GPU")
def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(HanmeError, match="finds no GPU"):
        device.choose("cuda")


@pytest.mark.parametrize("command", ["train", "evaluate", "predict", "benchmark", "tune"])
def test_commands_that_compute_with_a_model_take_a_device(command: str) -> None:
    with pytest.raises(HanmeError, match="tpu9"):
        app([command, "--device", "tpu9"], standalone_mode=False)
