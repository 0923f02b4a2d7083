"""The run folder: which files training writes, and how it survives being killed.

| file | content |
| --- | --- |
| ``config.json`` | the format of the folder, the version of hanme and the configuration |
| ``features.json`` | for a user's own tables, how their columns are encoded |
| ``metrics.jsonl`` | a row per scored epoch |
| ``checkpoint.safetensors`` | the state of training, while it runs |
| ``progress.json`` | the stage of training, while it runs |
| ``stack.json`` | the parts of the model, their slopes and the bias |
| ``model.safetensors`` | the weights of network and linear model, their ids, and the trees |
| ``decision.json`` | turns logits into probabilities and labels |
| ``logits.safetensors`` | held-out and final logits of all target nodes |
| ``predictions.parquet`` | the predictions of all target nodes |
| ``result.json`` | scores, written last: a run with it is finished |

Every file but ``metrics.jsonl`` is written to a temporary file and moved into place, so it is
complete or missing; ``metrics.jsonl`` is truncated to the checkpoint when a run is resumed. JSON
and safetensors files carry a checksum, and a file that has changed since is refused.
``result.json`` lists these checksums and that of ``metrics.jsonl``, so a file of another run is
refused too. Nothing reads ``predictions.parquet``.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hanme import __version__
from hanme.common import ranks
from hanme.common.files import (
    checksum,
    load_tensors,
    name_path,
    parse_json,
    read_json,
    regular,
    remove_leftovers,
    replacing,
    save_tensors,
    write_json,
)
from hanme.common.options import validated
from hanme.common.progress import Stage
from hanme.data import is_tables
from hanme.data.tables.build.fitted import FittedGraph
from hanme.decision import Decision
from hanme.errors import HanmeError, one_line
from hanme.graph import Graph
from hanme.runs.build import build_network
from hanme.runs.config import RunConfig
from hanme.training import Epoch, Network, Stacked, Trainer, load_learner, size_weights

FORMAT = 1
"""The format of run folders, counted up when this version could not open those of the next."""

SAVED = 10
"""Epochs between two checkpoints: a kill loses at most these."""

SECONDS = 120.0
"""Seconds between two checkpoints within an epoch of batches, which may last hours."""

CHECKPOINT = "checkpoint.safetensors"
PROGRESS = "progress.json"
LOCK = ".lock"

BEGUN = ("config.json", "features.json")
"""Files written before the first epoch."""

ENDED = ("decision.json", "stack.json", "model.safetensors", "logits.safetensors")
"""Files written before the result."""

RUN_FILES = (*BEGUN, *ENDED, "result.json")

RUNS = Path("runs")
"""The default folder of runs."""

REMEDY = "restore the file from a copy, or train again into another folder"


def new_folder(name: str, *, resume: bool = False) -> Path:
    """Create the folder of a new run: ``runs/NAME``, or ``runs/NAME-2`` if that exists, and so on.

    Two processes never get the same one. With ``resume``, return the last existing one, if any.
    """
    ends = (re.fullmatch(rf"{re.escape(name)}(?:-(\d+))?", path.name) for path in RUNS.glob("*"))
    last = max((int(end[1] or 1) for end in ends if end), default=0)
    number = last if resume and last else last + 1
    while True:
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True, exist_ok=resume and number == last)
            return folder
        except FileExistsError:  # another process has just created it
            number += 1


def latest_run() -> Path:
    """Return the run in ``runs`` that was finished last."""
    finished = list(RUNS.glob("*/result.json"))
    if not finished:
        raise HanmeError(
            f"no finished run in {RUNS.absolute()}: name a run folder, or train with "
            "hanme train GRAPH"
        )
    return max(finished, key=lambda path: path.stat().st_mtime_ns).parent


class Run:
    """A run folder."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.config = config

    @classmethod
    def find(cls, folder: Path, config: RunConfig, *, resume: bool) -> Run | None:
        """Return the run to continue, or None for a new one; write nothing."""
        if folder.exists() and not folder.is_dir():
            raise HanmeError(f"{folder}: it is a file; name a folder for the run")
        if not (folder / "config.json").exists():
            if (other := _not_of_a_run(folder)) is not None:
                raise HanmeError(
                    f"{folder}: it is not a run and holds other files, such as {other.name}; name "
                    "a new or empty folder"
                )
            return None
        if not resume:
            raise HanmeError(
                f"{folder}: it already holds a run; continue it with --resume, "
                "or name another folder"
            )
        run = cls.open(folder)
        if differences := run.config.differences(config):
            raise HanmeError(
                f"{folder}: it holds a run of another configuration ({differences[0]}); "
                "resume it with the same options or name another folder"
            )
        return run

    @classmethod
    def create(cls, folder: Path, config: RunConfig, schema: FittedGraph | None = None) -> Run:
        """Create a run; refuse a folder that holds one."""
        cls.find(folder, config, resume=False)
        run = cls(folder, config)
        run.discard()
        if schema is not None:
            write_json(folder / "features.json", schema.model_dump(mode="json"))
        about = {"format": FORMAT, "hanme": __version__}
        write_json(folder / "config.json", about | config.model_dump())
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open an existing run."""
        path = folder / "config.json"
        if not path.exists():
            raise HanmeError(f"{folder}: it holds no run (config.json is missing)")
        values = read_json(path)
        written, by = values.pop("format", 1), values.pop("hanme", "0.3.0 or earlier")
        if not isinstance(written, int) or not 1 <= written <= FORMAT:
            raise HanmeError(
                f"{path}: format {written}, of hanme {by}; hanme {__version__} opens formats up to "
                f"{FORMAT}: update hanme"
            )
        return cls(folder, RunConfig.make(values, str(path)))

    def discard(self) -> None:
        """Remove what a failed run has left; leave all other files."""
        for name in (*BEGUN, "metrics.jsonl", CHECKPOINT, PROGRESS):
            (self.folder / name).unlink(missing_ok=True)

    def fitted(self) -> FittedGraph | None:
        """Return the schema of the run's graph; None for a data set with a name."""
        path = self.folder / "features.json"
        if not is_tables(self.config.data.name) and not path.exists():
            return None
        return FittedGraph.make(read_json(path), str(path))

    def decision(self) -> Decision:
        """Return the decision of a finished run."""
        path = self.folder / "decision.json"
        return validated(Decision, read_json(path), f"{path}: not a decision")

    @property
    def finished(self) -> bool:
        """Whether result and weights exist."""
        return all((self.folder / name).exists() for name in ("result.json", "model.safetensors"))

    def result(self) -> dict[str, Any]:
        """Return the result of a finished run; refuse files of another run."""
        if not self.finished:
            raise HanmeError(f"{self.folder}: this run is not finished; continue it with --resume")
        path = self.folder / "result.json"
        result = read_json(path)
        if not isinstance(result.get("scores"), dict):
            raise HanmeError(f"{path}: not the result of a run: scores are missing")
        for name, expected in result.pop("files", {}).items():
            part = self.folder / name
            if not part.exists() or checksum(part) not in (None, expected):
                raise HanmeError(
                    f"{part}: it is missing or of another run; restore it from a copy, or remove "
                    "result.json and continue with --resume"
                )
        return result

    def metrics(self) -> list[dict[str, float]]:
        """Return a row per scored epoch; a line truncated by a crash is not counted."""
        path = self.folder / "metrics.jsonl"
        lines = regular(path).read_bytes().splitlines(keepends=True) if path.exists() else []
        rows: list[dict[str, float]] = []
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                continue
            before = rows[-1]["epoch"] if rows else 0
            try:
                row = asdict(Epoch(**parse_json(line)))
                if not all(map(math.isfinite, row.values())):
                    raise ValueError("a number is infinite")
                if not 0 < row["epoch"] - before <= self.config.training.every:
                    raise ValueError(f"epoch {row['epoch']} after {before}")
            except (ValueError, TypeError, OverflowError) as error:
                why = f"not the row of an epoch ({one_line(error)})"
                raise HanmeError(f"{path} line {number}: {why}; {REMEDY}") from None
            rows.append(row)
        return rows

    def progress(self) -> dict[str, Any]:
        """Return stage, percentage and seconds left of a run in training, as far as known."""
        try:
            values = read_json(self.folder / PROGRESS)
        except HanmeError:  # not begun yet, or finished a moment ago
            return {}
        return {name: values.get(name) for name in ("stage", "percent", "seconds_left")}

    def write_metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Replace the rows of all epochs."""
        with replacing(self.folder / "metrics.jsonl") as path:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def train(self, trainer: Trainer, on_epoch: Callable[[Epoch], None]) -> None:
        """Train to the end from the last checkpoint, and write one every few epochs.

        In batches, also every few minutes. Of several ranks, only the first reads and writes.
        """
        checkpoint, metrics = self.folder / CHECKPOINT, self.folder / "metrics.jsonl"
        trainer.fit_state.folder = self.folder
        state = ranks.from_first(lambda: load_tensors(checkpoint) if checkpoint.exists() else None)
        if state is not None:
            with fitting(checkpoint):
                trainer.load_state(*state)
        if not ranks.is_first():
            trainer.run()
            return
        remove_leftovers(self.folder)
        reached = trainer.progress.epoch
        rows = [row for row in self.metrics() if row["epoch"] <= reached]
        if reached and (not rows or rows[-1]["epoch"] < reached):
            raise HanmeError(f"{metrics}: no row of epoch {reached}; {REMEDY}")
        self.write_metrics(rows)
        with name_path(metrics), metrics.open("a") as log:
            saved = time.monotonic()

            def save() -> None:
                nonlocal saved
                save_tensors(checkpoint, *trainer.state())
                saved = time.monotonic()

            def record(epoch: Epoch) -> None:
                log.write(json.dumps(asdict(epoch)) + "\n")
                log.flush()
                if epoch.epoch % SAVED < trainer.config.every or trainer.finished:
                    save()
                on_epoch(epoch)

            def on_step() -> None:
                if time.monotonic() - saved >= SECONDS:
                    save()

            trainer.on_step = on_step
            trainer.run(record)

    def model(self, graph: Graph) -> Stacked:
        """Load the model of a finished run for a graph."""
        path, spec = self.folder / "model.safetensors", self.folder / "stack.json"
        values, (tensors, _) = read_json(spec), load_tensors(path)
        if (trees := values.pop("trees", None)) is not None:  # a file of their own, in 0.3.0
            raw = bytearray(regular(self.folder / "trees.ubj").read_bytes())
            tensors[trees["tensor"]] = torch.frombuffer(raw, dtype=torch.uint8)
        network = None
        weights = {k.removeprefix("network."): v for k, v in tensors.items() if k[:8] == "network."}
        stacks_network = "network" in values.get("parts", {})
        built = build_network(self.config.model, graph) if stacks_network else None
        with fitting(path):
            if built is not None:
                size_weights(built, graph)
                built.load_state_dict(weights)
                network = Network(built.eval(), self.config.training.batch_size)
            model = load_learner(values, tensors, graph, network)
        if not isinstance(model, Stacked):
            raise HanmeError(f"{spec}: not a stacked model")
        return model

    def finish(self, model: Stacked, decision: Decision, result: dict[str, Any]) -> None:
        """Write model, decision and, last, the result; the checkpoint is no longer needed."""
        values, tensors = model.state()
        write_json(self.folder / "decision.json", decision.model_dump(mode="json"))
        write_json(self.folder / "stack.json", values)
        save_tensors(self.folder / "model.safetensors", tensors, {})
        names = (*BEGUN, "metrics.jsonl", *ENDED)
        checksums = {name: found for name in names if (found := checksum(self.folder / name))}
        write_json(self.folder / "result.json", result | {"files": checksums})
        for name in (CHECKPOINT, PROGRESS):
            (self.folder / name).unlink(missing_ok=True)


class ProgressFile:
    """Write the stage of a run in training to its folder, at most once a second within a stage."""

    def __init__(self, folder: Path) -> None:
        self.path, self.name, self.written = folder / PROGRESS, "", 0.0

    def __call__(self, stage: Stage) -> None:
        """Write the stage, its percentage and the seconds that are left of it."""
        recent = stage.name == self.name and time.monotonic() - self.written < 1
        if recent or not ranks.is_first():
            return
        percent = None if stage.done is None else round(100 * stage.done, 1)
        values = {"stage": stage.name, "percent": percent, "seconds_left": stage.seconds_left}
        write_json(self.path, values)
        self.name, self.written = stage.name, time.monotonic()


def _not_of_a_run(folder: Path) -> Path | None:
    """Return a file that no run leaves before its ``config.json``; hidden ones are not touched."""
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        try:
            if path.name == "features.json":
                FittedGraph.make(read_json(path), str(path))
            elif not path.name.startswith("."):
                return path
        except HanmeError:
            return path
    return None


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Report tensors of ``path`` that do not fit the model in one line."""
    try:
        yield
    except HanmeError as error:  # such as a component of a package that is not installed
        raise HanmeError(f"{path}: {error}") from None
    except (RuntimeError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        why = f"weights of another model than config.json says: {one_line(error)}"
        raise HanmeError(f"{path}: {why}") from None
