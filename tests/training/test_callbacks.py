"""Callbacks: when their hooks are called, what they change, and what survives a kill."""

import json
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from hanme.common.files import load_tensors
from hanme.data import METAPATHS, planted
from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.nn import HANME
from hanme.nn.batch import Batch
from hanme.runs import RunConfig, train
from hanme.testing import CallbackCases
from hanme.training import CALLBACKS, Callback, Trainer, TrainingConfig, build_seeded

HOOKS = ("on_fit_start", "on_epoch_start", "on_backward_end", "on_epoch_end", "on_fit_end")
GRAPH = planted(movies=60, genres=3)


class Record(Callback):
    """Write down which hook is called at which epoch, with which metrics."""

    calls: list

    def __init__(self) -> None:
        type(self).calls = []


def _write(hook: str):
    def write(self, state) -> None:
        self.calls.append((hook, state.epoch, sorted(state.metrics)))
        torch.rand(3)  # which changes no result

    return write


for _hook in HOOKS:
    setattr(Record, _hook, _write(_hook))


class Stop(Callback):
    def __init__(self, epoch: int, hook: str = "on_epoch_end") -> None:
        setattr(self, hook, lambda state: state.stop() if state.epoch == epoch else None)


class Clip(Callback):
    def __init__(self, norm: float = 1.0) -> None:
        self.norm = norm

    def on_backward_end(self, state) -> None:
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), self.norm)


class Decay(Callback):
    """Multiply the learning rate, which is not a function of the epoch."""

    def on_epoch_end(self, state) -> None:
        state.optimizer.param_groups[0]["lr"] *= 0.5


class Plateau(Callback):
    """Stop after a number of epochs without a smaller loss: a state of its own."""

    def __init__(self) -> None:
        self.seen = torch.zeros(0)

    def on_epoch_end(self, state) -> None:
        self.seen = torch.cat([self.seen, torch.tensor([state.metrics["loss"]])])
        if len(self.seen) == 5:
            state.stop()

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state) -> None:
        self.seen = state["seen"]


class Broken(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, state) -> None:
        if state.epoch == self.epoch:
            raise KeyError("no\nsuch thing")


OURS = {c.__name__.lower(): c for c in (Record, Stop, Clip, Decay, Plateau, Broken)}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, kind in OURS.items():
        monkeypatch.setitem(CALLBACKS, name, kind)
    monkeypatch.chdir(tmp_path)  # loggers write to the current folder
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)


def trainer(*callbacks, dropout: float = 0.5, **config) -> Trainer:
    settings = TrainingConfig(
        **{"recipe": "paper", "epochs": 6, "callbacks": list(callbacks), **config}
    )
    model, random = build_seeded(
        lambda: HANME(
            GRAPH.metadata(),
            "movie",
            GRAPH.metapaths,
            3,
            hidden_channels=8,
            heads=2,
            dropout=dropout,
        ),
        GRAPH,
        settings.seed,
    )
    return Trainer(model, GRAPH, settings, random=random)


def weights(run: Trainer) -> list[torch.Tensor]:
    return list(run.model.state_dict().values())


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def config_of(*callbacks, epochs: int = 12, **training) -> RunConfig:
    model = {"hidden_channels": 8, "heads": 2, "metapaths": METAPATHS["planted"][:2]}
    values = {
        "data": {"name": "planted", "options": {"movies": 60, "genres": 3}},
        "model": {"name": "hanme", "options": model},
        "training": {"recipe": "paper", "epochs": epochs, "callbacks": callbacks, **training},
    }
    return RunConfig.make(json.loads(json.dumps(values)))


def killed_before_the_end(config: RunConfig, folder: Path, monkeypatch) -> None:
    """Train, but be interrupted after the last epoch."""

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["hanme.runs.train"], "finalize", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(config, folder)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_hooks_are_called_in_order(batch_size: int | None) -> None:
    run = trainer("record", epochs=3, every=2, batch_size=batch_size)
    run.run()
    nodes = int(GRAPH.split.train.sum())
    steps = 1 if batch_size is None else -(-nodes // batch_size)
    assert batch_size is None or steps > 1
    expected = [("on_fit_start", 0)]
    for epoch in (1, 2, 3):
        expected += [("on_epoch_start", epoch), *[("on_backward_end", epoch)] * steps]
        expected.append(("on_epoch_end", epoch))
    assert [call[:2] for call in Record.calls] == [*expected, ("on_fit_end", 3)]
    ends = [metrics for hook, _, metrics in Record.calls if hook == "on_epoch_end"]
    assert ends[0] == ["loss", "share"]  # scores are taken every two epochs, and at the end
    assert (
        ends[1]
        == ends[2]
        == sorted(
            ["loss", "share", "seconds", "val_loss"]
            + [f"{part}_{f1}" for part in ("train", "val") for f1 in ("micro", "macro")]
        )
    )


@pytest.mark.parametrize("batch_size", [None, 10])
def test_callbacks_that_change_nothing_change_no_bit(batch_size: int | None) -> None:
    runs = [trainer(batch_size=batch_size), trainer("record", batch_size=batch_size)]
    for run in runs:
        run.run()
    assert same(*map(weights, runs))


def plain(norm: float = torch.inf, factor: float = 1.0) -> list[torch.Tensor]:
    """Train six epochs without a trainer, with PyTorch's own clipping and schedule."""
    model = trainer(dropout=0.0).model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=0.001)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, factor)
    mask = GRAPH.split.train
    model.train(True)
    for _ in range(6):
        optimizer.zero_grad()
        node_losses(model(Batch.of(GRAPH))[mask], GRAPH.y[mask]).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        schedule.step()
    return list(model.state_dict().values())


def test_clipping_and_schedules_are_those_of_a_plain_loop() -> None:
    free = plain()
    for callbacks, expected in {
        (): free,
        ("clip",): plain(norm=0.01),
        ("decay",): plain(factor=0.5),
        ("clip", "decay"): plain(norm=0.01, factor=0.5),
    }.items():
        tables = [{"name": "clip", "norm": 0.01} if c == "clip" else c for c in callbacks]
        run = trainer(*tables, dropout=0.0, select="last")
        run.run()
        for found, value in zip(weights(run), expected, strict=True):
            torch.testing.assert_close(found, value, atol=1e-7, rtol=1e-6)
        assert not callbacks or not same(expected, free)


@pytest.mark.parametrize("hook", HOOKS[1:4])
@pytest.mark.parametrize(("batch_size", "every"), [(None, 1), (None, 4), (10, 4)])
def test_a_stop_ends_training_after_the_epoch_and_is_kept(
    hook: str, batch_size: int | None, every: int
) -> None:
    options = {"batch_size": batch_size, "every": every, "select": "last"}
    run, seen, states = trainer({"name": "stop", "epoch": 3, "hook": hook}, **options), [], []
    run.on_step = lambda: states.append(deepcopy(run.state()))
    run.run(seen.append)
    assert run.finished
    assert (seen[-1].epoch, run.progress.trained) == (3, 3)
    short = trainer(epochs=3, **options)
    short.run()
    assert same(weights(run), weights(short))
    for state in [*states, run.state()]:  # also of the middle of an epoch
        resumed = trainer({"name": "stop", "epoch": 3, "hook": hook}, **options)
        resumed.load_state(*state)
        resumed.run()
        assert resumed.progress.trained == 3
        assert same(weights(resumed), weights(run))


def test_a_stop_before_the_first_epoch_takes_none() -> None:
    run = trainer({"name": "stop", "epoch": 0, "hook": "on_fit_start"})
    before = [value.clone() for value in weights(run)]
    run.run()
    assert (run.progress.trained, same(before, weights(run))) == (0, True)


def test_a_stopped_run_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = config_of({"name": "stop", "epoch": 5}, every=3), tmp_path / "run"
    killed_before_the_end(config, folder, monkeypatch)
    assert load_tensors(folder / "checkpoint.safetensors")[1]["stopped"] is True
    assert train(config, folder, resume=True).result()["epochs"] == 5
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [3, 5]


def test_a_run_resumed_with_other_callbacks_is_refused(tmp_path: Path, monkeypatch) -> None:
    killed_before_the_end(config_of("decay"), tmp_path / "run", monkeypatch)
    with pytest.raises(HanmeError, match=r"another configuration \(training.callbacks"):
        train(config_of(), tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ("mine", "Expected `callback` to be one of mlflow, tensorboard, .*, but got 'mine'; if a"),
        ({"name": "clip", "size": 1}, "callback Clip has no option 'size'; it has norm"),
        ({"name": "clip", "norm": "big"}, "callback Clip: norm: Input should be a valid number"),
        ({"norm": 1.0}, "callback: a table of options needs the name of a callback"),
    ],
)
def test_a_wrong_callback_is_refused_before_anything_is_written(
    tmp_path: Path, callback, message: str
) -> None:
    with pytest.raises(HanmeError, match=message) as error:
        train(config_of(callback), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_hook_that_fails_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    why = r"^callback Broken: on_epoch_end at epoch 4: KeyError: 'no\\nsuch thing'$"
    with pytest.raises(HanmeError, match=why) as error:
        train(config_of({"name": "broken", "epoch": 4}), folder)
    assert isinstance(error.value.__cause__, KeyError)
    assert not folder.exists()  # there is nothing to continue


def test_a_run_whose_callback_failed_after_a_checkpoint_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = config_of({"name": "broken", "epoch": 12}, epochs=14), tmp_path / "run"
    with pytest.raises(HanmeError, match="callback Broken"):
        train(config, folder)
    monkeypatch.setattr(Broken, "on_epoch_end", lambda self, state: None)  # repaired
    run = train(config, folder, resume=True)
    other = train(config_of(epochs=14), tmp_path / "other")
    assert run.result()["scores"] == other.result()["scores"]
    assert [row["epoch"] for row in run.metrics()] == list(range(1, 15))


@pytest.mark.parametrize("name", ["mlflow", "tensorboard"])
def test_a_missing_package_is_named_with_its_extra(name: str, monkeypatch) -> None:
    for module in (name, "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(HanmeError, match=rf"^callback {name}: .*: pip install 'hanme\[{name}\]'$"):
        trainer(name)


def logged_twice(callback: str, folder: Path) -> list[dict]:
    """Log a run that is resumed at its eleventh epoch, and stopped at an epoch without scores."""
    config = config_of({"name": "stop", "epoch": 13}, callback, every=2, epochs=20)

    def interrupt(epoch) -> None:
        if epoch.epoch == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, folder, on_epoch=interrupt)
    rows = train(config, folder, resume=True).metrics()
    assert [row["epoch"] for row in rows] == [2, 4, 6, 8, 10, 12, 13]
    return rows


def test_tensorboard_has_the_metrics_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = logged_twice("tensorboard", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {e.step for e in events.Scalars("loss")} == set(range(1, 14))
    for name in ("val_loss", "val_macro"):
        found = [(e.step, e.value) for e in events.Scalars(name)]
        assert [step for step, _ in found] == [row["epoch"] for row in rows]
        assert [value for _, value in found] == pytest.approx([row[name] for row in rows])


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let MLflow keep its runs in a folder of the test, and end those that were interrupted."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    yield
    while mlflow.active_run():
        mlflow.end_run()


@pytest.mark.slow
@pytest.mark.usefixtures("tracking")
def test_mlflow_has_the_metrics_of_a_run(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    rows = logged_twice("mlflow", tmp_path / "run")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])  # a resumed run continues its run
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["every"] == "2"
    for name in ("val_loss", "val_macro"):
        found = {m.step: m.value for m in client.get_metric_history(run.info.run_id, name)}
        assert found == {row["epoch"]: row[name] for row in rows}


class TestDecay(CallbackCases):
    name = "decay"


class TestPlateau(CallbackCases):
    name = "plateau"

    def test_it_stops_at_the_same_epoch_after_a_resume(self) -> None:
        run = self.trainer()
        run.run()
        assert run.progress.epoch == 5


class TestStop(CallbackCases):
    name, options = "stop", {"epoch": 3}


class TestTensorBoard(CallbackCases):
    name = "tensorboard"

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("tensorboard")


@pytest.mark.slow
@pytest.mark.usefixtures("tracking")
class TestMLflow(CallbackCases):
    name = "mlflow"


def test_every_callback_of_hanme_has_a_case() -> None:
    tested = {case.name for case in CallbackCases.__subclasses__()}
    assert set(CALLBACKS.builtin) <= tested


def test_a_callback_that_loses_its_state_fails_the_case(monkeypatch) -> None:
    monkeypatch.setattr(Plateau, "load_state_dict", lambda self, state: None)
    with pytest.raises(AssertionError):
        TestPlateau().test_weights_are_the_same_after_a_resume()


WORKER = '''
import sys
from pathlib import Path
from hanme.common import ranks
from hanme.runs import RunConfig, train
from hanme.training import CALLBACKS, Callback

class Last(Callback):
    """Stop on the last rank alone."""
    def on_epoch_start(self, state):
        if state.epoch == 2 and ranks.rank() == 1:
            state.stop()

class Log(Callback):
    first_only = True
    def on_epoch_end(self, state):
        with open(Path(sys.argv[2]) / "log", "a") as file:
            file.write(f"{ranks.rank()} {state.epoch}\\n")

CALLBACKS["last"], CALLBACKS["log"] = Last, Log
with ranks.joined():
    train(RunConfig.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]) / "run")
'''


@pytest.mark.slow
def test_a_stop_on_one_rank_stops_all_and_only_the_first_logs(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    text = config_of("last", "log", epochs=6, batch_size=10, lr=0.01).model_dump_json()
    (tmp_path / "config.json").write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["worker.py", "config.json", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["epochs"] == 2
    assert (tmp_path / "log").read_text() == "0 1\n0 2\n"
