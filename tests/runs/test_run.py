"""Run folders, written by real processes and killed with a real signal."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
import torch

from commands import forked
from hanme import __version__
from hanme.common.files import load_tensors, read_json, write_json
from hanme.errors import HanmeError
from hanme.runs import (
    DataConfig,
    OpenedRun,
    Run,
    RunConfig,
    build_network,
    load_graph,
    new_folder,
    train,
)
from hanme.runs.build import schema_of
from hanme.runs.config import PYTHON
from hanme.training import Epoch

FILES = {
    "config.json", "metrics.jsonl", "model.safetensors", "predictions.parquet",
    "decision.json", "logits.safetensors", "stack.json", "result.json",
}  # fmt: skip


def config(**training) -> RunConfig:
    options = {
        "metapaths": ["movie-director-movie", "movie-actor-movie"],
        "hidden_channels": 16,
        "heads": 2,
    }
    return RunConfig.make(
        {
            "data": {"name": "planted", "options": {"movies": 120}},
            "model": {"name": "hanme", "options": options},
            "training": {"recipe": "paper", "epochs": 15, **training},
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(config(), folder)
    return folder


def test_leaves_what_the_design_says_and_nothing_else(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == FILES
    rows = Run.open(finished).metrics()
    assert [row["epoch"] for row in rows] == list(range(1, 16))
    result = Run.open(finished).result()
    assert result["best_epoch"] == max(rows, key=lambda row: row["val_macro"])["epoch"]
    assert len({path.stat().st_mode for path in finished.iterdir()}) == 1


def test_evaluate_gives_the_result_again(finished: Path) -> None:
    assert OpenedRun.open(finished).evaluate() == Run.open(finished).result()["scores"]


def test_predictions_are_a_table_with_names(finished: Path) -> None:
    rows = duckdb.sql(f"SELECT * FROM '{finished / 'predictions.parquet'}'")
    assert rows.columns[:5] == ["node", "name", "split", "labels", "predicted"]
    assert len(rows.columns) == 12
    found = rows.fetchall()
    assert [row[0] for row in found] == list(range(120))
    assert all(row[1] for row in found)
    # The table alone gives the micro F1 that result.json states.
    test = [row for row in found if row[2] == "test"]
    hits = sum(len(set(row[3]) & set(row[4])) for row in test)
    total = sum(len(row[3]) + len(row[4]) for row in test)
    stated = Run.open(finished).result()["scores"]["with_fallback"]["test"]["micro"]
    assert 200 * hits / total == pytest.approx(stated, abs=1e-3)


def train_until(epoch: int, folder: Path) -> None:
    """Train, and wait after an epoch to be killed."""
    train(config(), folder, resume=True, on_epoch=lambda e: time.sleep(60 * (e.epoch == epoch)))


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [1, 10])
def test_killed_and_resumed_ends_with_the_same_weights(
    finished: Path, tmp_path: Path, epoch: int
) -> None:
    folder = tmp_path / "killed"
    process = forked(train_until, epoch, folder)
    try:
        deadline = time.monotonic() + 300
        while (
            len(
                Run.open(folder).metrics()
                if folder.exists() and (folder / "config.json").exists()
                else []
            )
            < epoch
        ):
            assert time.monotonic() < deadline
            assert process.is_alive()
            time.sleep(0.05)
        with pytest.raises(HanmeError, match="killed: another process is working on it"):
            train(config(), folder, resume=True)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not Run.open(folder).finished
    with (folder / "metrics.jsonl").open("a") as log:
        log.write('{"epoch": 99, "lo')  # a line cut off by the crash
    (folder / f".checkpoint.{'0a' * 16}.safetensors").write_bytes(b"half")  # and half a file
    train(config(), folder, resume=True)
    ours = load_tensors(folder / "model.safetensors")[0]
    expected = load_tensors(finished / "model.safetensors")[0]
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[key], expected[key]) for key in ours)
    without_time = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in Run.open(path).metrics()]
        for path in (folder, finished)
    ]
    assert without_time[0] == without_time[1]
    assert {path.name for path in folder.iterdir()} == FILES


def test_a_folder_that_holds_a_run_is_left_alone(finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.iterdir()}
    with pytest.raises(HanmeError, match="it already holds a run; continue it with --resume"):
        train(config(), finished)
    assert train(config(), finished, resume=True).finished  # nothing left to do
    assert {path: path.read_bytes() for path in finished.iterdir()} == before


@pytest.mark.parametrize("epochs", [0, 10])
def test_an_unexpected_exception_leaves_what_can_be_resumed(epochs: int, tmp_path: Path) -> None:
    def fail(epoch: Epoch) -> None:
        if epoch.epoch > epochs:
            raise MemoryError

    with pytest.raises(MemoryError):
        train(config(), tmp_path / "run", on_epoch=fail)
    left = {path.name for path in tmp_path.glob("run/*")}
    if epochs:
        assert {"config.json", "checkpoint.safetensors"} <= left
        with pytest.raises(MemoryError):  # resuming it fails again, and it remains
            train(config(), tmp_path / "run", resume=True, on_epoch=fail)
    else:
        assert not left
    assert train(config(), tmp_path / "run", resume=bool(epochs)).finished


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "features.json", "checkpoint.safetensors", "progress.json",
     "model.safetensors", "notes"],
)  # fmt: skip
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_another_tool_is_left_alone(name: str, resume: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"of": "another tool"}')
    with pytest.raises(HanmeError, match=f"holds other files, such as {name}; name a new or empty"):
        train(config(), tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"of": "another tool"}'


def test_hidden_files_and_what_a_kill_has_left_are_no_other_files(
    finished: Path, tmp_path: Path
) -> None:
    (tmp_path / ".gitignore").write_text("*")
    films = load_graph(config())
    schema = schema_of(config().model_copy(update={"data": DataConfig(name=PYTHON)}), films)
    assert schema is not None
    write_json(tmp_path / "features.json", schema.model_dump(mode="json"))  # before config.json
    assert Run.find(tmp_path, config(), resume=False) is None
    assert {path.name for path in Run.create(tmp_path, config()).folder.iterdir()} == {
        ".gitignore",
        "config.json",
    }


def test_two_processes_never_train_into_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(new_folder, ["films"] * 40))
    assert folders == {Path("runs/films"), *(Path(f"runs/films-{i}") for i in range(2, 41))}
    assert new_folder("films", resume=True) == Path("runs/films-40")
    assert new_folder("planes", resume=True) == Path("runs/planes")


def test_a_run_says_its_format_and_one_of_a_later_format_is_refused(
    finished: Path, tmp_path: Path
) -> None:
    folder = _copy(finished, tmp_path / "later")
    values = json.loads((folder / "config.json").read_text())
    assert (values["format"], values["hanme"]) == (1, __version__)
    del values["sha256"]
    for written in (2, 0, "x"):
        (folder / "config.json").write_text(json.dumps(values | {"format": written}))
        with pytest.raises(HanmeError, match=f"format {written}, of hanme .*: update hanme"):
            Run.open(folder)


def test_resuming_with_another_configuration_names_the_difference(finished: Path) -> None:
    with pytest.raises(HanmeError, match=r"another configuration \(training.seed: 0, 5\)"):
        train(config(seed=5), finished, resume=True)


def _copy(finished: Path, to: Path) -> Path:
    to.mkdir()
    for path in finished.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_weights_of_another_model_are_refused(finished: Path, tmp_path: Path) -> None:
    folder = _copy(finished, tmp_path / "other")
    values = read_json(folder / "config.json")
    values["model"]["options"]["encoder"] = "direct"
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(HanmeError, match="weights of another model"):
        OpenedRun.open(folder).evaluate()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_cut_off_file_is_named(finished: Path, tmp_path: Path, name: str) -> None:
    folder = _copy(finished, tmp_path / "cut")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(HanmeError, match=name):
        OpenedRun.open(folder).evaluate()


def test_no_run_and_an_unfinished_one(tmp_path: Path) -> None:
    with pytest.raises(HanmeError, match="holds no run"):
        OpenedRun.open(tmp_path).evaluate()
    run = Run.create(tmp_path / "new", config())
    with pytest.raises(HanmeError, match="not finished"):
        OpenedRun.open(run.folder).evaluate()
    (tmp_path / "file").write_text("")
    with pytest.raises(HanmeError, match="it is a file"):
        Run.create(tmp_path / "file", config())


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("training", {"epochs": 0}, "training.epochs"),
        ("training", {"speed": 1}, "training.speed"),
        ("training", {"lr": float("inf")}, "training.lr"),
        ("data", {"features": "none"}, "data.features"),
        ("model", {"options": {"metapaths": 5}}, "model hanme: metapaths: .* but got 5"),
        ("model", {"options": {}}, "model hanme: metapaths is missing"),
        ("model", {"options": 5}, "model.options: Input should be a valid dictionary"),
        ("model", {"name": "gru"}, "unknown model 'gru'"),
    ],
)
def test_a_bad_configuration_names_the_field(part: str, change: dict, message: str) -> None:
    values = config().model_dump()
    values[part] |= change
    with pytest.raises(HanmeError, match=message):
        RunConfig.make(values)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "[]", "not a JSON file of a run"),
        ("result.json", '{"scores": 5}', "not the result of a run"),
        ("result.json", "[]", "not a JSON file of a run"),
        ("metrics.jsonl", "garbage\n", "metrics.jsonl line 1"),
        ("metrics.jsonl", "{}\n", "metrics.jsonl line 1"),
    ],
)
def test_a_file_edited_to_nonsense_is_named(
    finished: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    folder = _copy(finished, tmp_path / "edited")
    (folder / name).write_text(text)
    with pytest.raises(HanmeError, match=message):
        [Run.open(folder).metrics(), Run.open(folder).result()]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("target", "movie", "model hanme has no option 'target'; it has metapaths, "),
        ("gamma", "x", "encoder Multihop: gamma: Input should be a valid number, but got 'x'"),
        ("encoder", 7, "model hanme: encoder: Input should be a valid string, but got 7"),
        ("depth", 2, "encoder Multihop has no option 'depth'; it has gamma"),
        ("heads", "x", "model hanme: heads: Input should be a valid integer, but got 'x'"),
        ("heads", True, "model hanme: heads: Input should be a valid integer, but got True"),
        ("heads", 0, "multiple of heads"),
        ("hidden_channels", 0, "multiple of heads"),
        ("hidden_channels", 2**40, "`hidden_channels` to be from 1 to"),
        ("dropout", 1, "`dropout` to be in"),
        ("feature_dropout", "x", "feature_dropout: Input should be a valid number"),
        ("activation", "tanh", "`activation` to be one of relu, elu, but got 'tanh'"),
        ("metapaths", [], "at least one metapath"),
        ("metapaths", "movie-actor-movie", "metapaths: 'str' instances are not allowed"),
    ],
)
def test_a_model_option_that_does_not_fit_is_refused(
    option: str, value: object, message: str
) -> None:
    values = config().model_dump()
    values["model"]["options"][option] = value

    def build() -> None:
        chosen = RunConfig.make(values)
        build_network(chosen.model, load_graph(chosen))

    with pytest.raises(HanmeError, match=message) as raised:
        build()
    assert "\n" not in str(raised.value)


def test_what_is_not_given_is_written_down(finished: Path) -> None:
    options = json.loads((finished / "config.json").read_text())["model"]["options"]
    assert (options["encoder"], options["dropout"], options["heads"]) == ("multihop", 0.6, 2)


def test_training_that_comes_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(HanmeError, match="the loss is"):
        train(config(lr=1e30), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_without_its_weights_is_trained_again(
    finished: Path, tmp_path: Path
) -> None:
    folder = _copy(finished, tmp_path / "lost")
    (folder / "model.safetensors").unlink()
    assert train(config(), folder, resume=True).finished
    assert OpenedRun.open(folder).evaluate() == OpenedRun.open(finished).evaluate()
