"""Run folders that were damaged: each file is refused by name, and nothing is silently wrong."""

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from hanme.errors import HanmeError
from hanme.runs import OpenedRun, Run, RunConfig, train
from hanme.training import Epoch

OPTIONS = {"metapaths": ["movie-director-movie"], "hidden_channels": 8, "heads": 1}


def config() -> RunConfig:
    return RunConfig.make(
        {
            "data": {"name": "planted", "options": {"movies": 60}},
            "model": {"options": OPTIONS},
            "training": {"recipe": "paper", "epochs": 15, "patience": 50},
        }
    )


def stop(epoch: Epoch) -> None:
    if epoch.epoch == 12:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run and one that was interrupted."""
    folder = tmp_path_factory.mktemp("made")
    train(config(), folder / "finished")
    with pytest.raises(KeyboardInterrupt):
        train(config(), folder / "begun", on_epoch=stop)
    return {name: folder / name for name in ("finished", "begun")}


@pytest.fixture
def copied(made: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(made[name], tmp_path / name))


def change_row(text: str, number: int, **changes: object) -> str:
    """Change one line of metrics.jsonl; None removes the key."""
    lines = text.splitlines()
    row = {**json.loads(lines[number]), **changes}
    lines[number] = json.dumps({key: value for key, value in row.items() if value is not None})
    return "\n".join(lines) + "\n"


DEEP = "[" * 100_000
METRICS: dict[str, Callable[[str], str]] = {
    "a bad byte": lambda text: text.replace("loss", "lo\udcffss", 1),
    "infinity": lambda text: change_row(text, 3, loss=float("inf")),
    "not a number": lambda text: change_row(text, 3, loss="x"),
    "too large a number": lambda text: change_row(text, 3, loss=10**400),
    "a missing key": lambda text: change_row(text, 3, seconds=None),
    "a list": lambda text: "[]\n" + text,
    "nested": lambda text: DEEP + "\n",
    "missing rows": lambda text: "".join(text.splitlines(keepends=True)[:3]),
    "missing rows in the middle": lambda text: "".join(
        line for i, line in enumerate(text.splitlines(keepends=True)) if i not in (4, 5)
    ),
    "a row twice": lambda text: text.splitlines(keepends=True)[0] + text,
    "empty": lambda text: "",
}


@pytest.mark.parametrize("damage", METRICS)
def test_damaged_metrics_are_refused_on_resume(copied: Callable[[str], Path], damage: str) -> None:
    path = copied("begun") / "metrics.jsonl"
    text = METRICS[damage](path.read_text())
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(HanmeError, match=r"metrics\.jsonl( line \d+)?: .*restore the file"):
        train(config(), path.parent, resume=True)


def rewrite(path: Path, change: Callable[[dict, dict], None]) -> None:
    """Change the tensors and the metadata of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    change(tensors, metadata)
    save_file(tensors, path, metadata=metadata)


def numbers(**changes: object) -> Callable[[dict, dict], None]:
    def change(tensors: dict, metadata: dict) -> None:
        metadata["numbers"] = json.dumps({**json.loads(metadata["numbers"]), **changes})

    return change


def put(name: str, tensor: torch.Tensor) -> Callable[[dict, dict], None]:
    return lambda tensors, metadata: tensors.update({name: tensor})


CHECKPOINTS: dict[str, Callable[[dict, dict], None]] = {
    "another epoch": numbers(epoch=-5),
    "no epoch": lambda tensors, metadata: metadata.update(numbers="{}"),
    "no name": lambda tensors, metadata: metadata.update(numbers="[1]"),
    "nested": lambda tensors, metadata: metadata.update(numbers=DEEP),
    "another shape": put("adam.0.exp_avg", torch.zeros(3)),
    "no generator": lambda tensors, metadata: tensors.pop("random"),
    "no number": put("model.head.bias", torch.tensor([float("nan")] * 5)),
    "a tensor more": put("else", torch.zeros(1)),
}


@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_damaged_checkpoints_are_refused(copied: Callable[[str], Path], damage: str) -> None:
    path = copied("begun") / "checkpoint.safetensors"
    rewrite(path, CHECKPOINTS[damage])
    with pytest.raises(HanmeError, match=r"checkpoint\.safetensors: ") as raised:
        train(config(), path.parent, resume=True)
    assert "\n" not in str(raised.value)


def bytes_of(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def flip(content: bytearray) -> None:
    content[-3] ^= 1


def zero_tail(content: bytearray) -> None:
    content[-64:] = bytes(64)


@pytest.mark.parametrize(("name", "change"), [("checkpoint", flip), ("model", zero_tail)])
def test_a_flipped_bit_is_noticed(
    copied: Callable[[str], Path], name: str, change: Callable[[bytearray], None]
) -> None:
    folder = copied("finished" if name == "model" else "begun")
    bytes_of(folder / f"{name}.safetensors", change)
    with pytest.raises(HanmeError, match=rf"{name}\.safetensors: it has changed since"):
        [train(config(), folder, resume=True), OpenedRun.open(folder).evaluate()]
    (folder / f"{name}.safetensors").unlink()  # as the message says
    assert train(config(), folder, resume=True).finished


@pytest.mark.parametrize("name", ["config", "decision", "result"])
def test_json_that_is_edited_or_nested_is_refused(copied: Callable[[str], Path], name: str) -> None:
    path = copied("finished") / f"{name}.json"
    run = Run.open(path.parent)
    uses = {"config": lambda: Run.open(path.parent), "decision": run.decision, "result": run.result}
    text = path.read_text()
    for wrong in (DEEP, '{"a":' * 100_000, "\udcff"):
        path.write_bytes(wrong.encode(errors="surrogateescape"))
        with pytest.raises(HanmeError, match=rf"{name}\.json: not a JSON file of a run"):
            uses[name]()
    values = json.loads(text)
    values[next(iter(values))] = "half"
    path.write_text(json.dumps(values))
    with pytest.raises(HanmeError, match=rf"{name}\.json: it has changed since it was written"):
        uses[name]()


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """Lets no file grow beyond some bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("size", "name"), [(100, "config.json"), (1300, "metrics.jsonl"), (3000, "checkpoint.saf")]
)
def test_a_full_disk_is_one_line_and_the_run_goes_on(
    made: dict[str, Path],
    tmp_path: Path,
    small_disk: Callable[[int], None],
    size: int,
    name: str,
) -> None:
    folder = tmp_path / "run"
    small_disk(size)
    with pytest.raises(OSError, match="File too large") as raised:
        train(config(), folder)
    assert Path(raised.value.filename).name.startswith(name)
    small_disk(resource.RLIM_INFINITY)
    assert train(config(), folder, resume=True).finished
    same = [(path / "model.safetensors").read_bytes() for path in (folder, made["finished"])]
    assert same[0] == same[1]
