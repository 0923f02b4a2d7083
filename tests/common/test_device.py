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


def test_the_random_state_of_a_gpu_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout on a GPU draws from the GPU's generator."""
    states = {1: torch.arange(16, dtype=torch.uint8)}
    gpu = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda index: states[index].clone())
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, index: states.update({index: state})
    )
    assert device.gpus(gpu) == [1]
    assert device.gpus(torch.device("cpu")) == []
    with torch.random.fork_rng([]):
        saved, drawn = device.rng_state(gpu), torch.rand(2)
        states[1] = torch.zeros(16, dtype=torch.uint8)
        device.set_rng_state(saved, gpu)
        assert states[1].tolist() == list(range(16))
        assert torch.rand(2).equal(drawn)


def test_a_seed_of_the_cpu_seeds_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else dropout on a GPU would ignore the seed in the first epoch."""
    states, generator = {}, torch.Generator
    monkeypatch.setattr(
        torch, "Generator", lambda place: generator() if place == "cuda:1" else None
    )
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, index: states.update({index: state})
    )
    seeded = generator().manual_seed(7).get_state()
    with torch.random.fork_rng([]):
        device.set_rng_state(seeded, torch.device("cuda", 1))
        assert torch.equal(torch.get_rng_state(), seeded)
    assert torch.equal(states[1], seeded)
