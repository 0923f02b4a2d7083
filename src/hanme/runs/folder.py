"""The run folder: which files training writes, and how it survives being killed.

| file | content |
| --- | --- |
| ``config.json`` | the configuration |
| ``features.json`` | for a user's own tables, how their columns are encoded |
| ``metrics.jsonl`` | a row per scored epoch |
| ``checkpoint.safetensors`` | the state of training, while it runs |
| ``stack.json`` | the parts of the model, their slopes and the bias |
| ``model.safetensors`` | the weights of network and linear model, and the ids of the latter |
| ``trees.ubj`` | the trees, in the format of XGBoost |
| ``decision.json`` | turns logits into probabilities and labels |
| ``predictions.parquet`` | the predictions of all target nodes |
| ``curves``, ``reliability`` | pictures, as SVG and PNG |
| ``result.json`` | scores, written last: a run with it is finished |

Every file but ``metrics.jsonl`` is written to a temporary file and moved into place, so it is
complete or missing; ``metrics.jsonl`` is truncated to the checkpoint when a run is resumed. JSON
and safetensors files carry a checksum, and a file that has changed since is refused
(:mod:`hanme.runs.checks`). ``result.json`` lists the checksums of the other files, and a checkpoint
those of the files before it, so a file of another run is refused too.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hanme.common import ranks
from hanme.common.files import (
    checksum,
    load_tensors,
    name_path,
    read_json,
    regular,
    remove_leftovers,
    replacing,
    save_tensors,
    write_json,
)
from hanme.common.options import validated
from hanme.data import is_tables
from hanme.data.tables.build.fitted import FittedGraph
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.build import build_network
from hanme.runs.checks import (
    REMEDY,
    check_result,
    check_state,
    fitting,
    read_metrics,
    refuse_non_finite,
)
from hanme.runs.config import LINEAR, RunConfig
from hanme.training import (
    Epoch,
    Network,
    Stacked,
    Trainer,
    load_learner,
    size_weights,
)

SAVED = 10
"""Epochs between two checkpoints: a kill loses at most these."""

SECONDS = 120.0
"""Seconds between two checkpoints within an epoch of batches, which may last hours."""

CHECKPOINT = "checkpoint.safetensors"

BEGUN = ("config.json", "features.json")
"""Files written before the first epoch."""

ENDED = ("decision.json", "stack.json", "model.safetensors")
"""Files written before the result."""

RUN_FILES = (*BEGUN, *ENDED, "result.json")

RUNS = Path("runs")
"""The default folder of runs."""


def new_folder(name: str, *, resume: bool = False) -> Path:
    """Return the folder for a new run: ``runs/NAME``, or ``runs/NAME-2`` if that exists, and so on.

    With ``resume``, return the last existing one of these, if any.
    """
    ends = (re.fullmatch(rf"{re.escape(name)}(?:-(\d+))?", path.name) for path in RUNS.glob("*"))
    last = max((int(end[1] or 1) for end in ends if end), default=0)
    number = last if resume and last else last + 1
    return RUNS / (name if number == 1 else f"{name}-{number}")


def latest_run() -> Path:
    """Return the run in ``runs`` that was finished last."""
    finished = [path.parent for path in RUNS.glob("*/result.json")]
    if not finished:
        raise HanmeError(
            f"no finished run in {RUNS.absolute()}: name a run folder, or train with "
            "hanme train GRAPH"
        )
    return max(finished, key=lambda folder: (folder / "result.json").stat().st_mtime_ns)


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
            return None
        if not resume:
            raise HanmeError(
                f"{folder}: it already holds a run; continue it with --resume, "
                "or name another folder"
            )
        run = cls.open(folder)
        differences = run.config.differences(config)
        if differences:
            raise HanmeError(
                f"{folder}: it holds a run of another configuration ({differences[0]}); "
                "resume it with the same options or name another folder"
            )
        return run

    @classmethod
    def create(
        cls,
        folder: Path,
        config: RunConfig,
        schema: FittedGraph | None = None,
    ) -> Run:
        """Create a run; refuse a folder that holds one."""
        cls.find(folder, config, resume=False)
        run = cls(folder, config)
        if schema is not None:
            write_json(folder / "features.json", schema.model_dump(mode="json"))
        write_json(folder / "config.json", config.model_dump())
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open an existing run."""
        path = folder / "config.json"
        if not path.exists():
            raise HanmeError(f"{folder}: it holds no run (config.json is missing)")
        return cls(folder, RunConfig.make(read_json(path), str(path)))

    def fitted(self) -> FittedGraph | None:
        """Return the schema of the run's graph; None for a data set with a name."""
        path = self.folder / "features.json"
        if not is_tables(self.config.data.name) and not path.exists():
            return None
        return FittedGraph.make(read_json(path), str(path))

    def decision(self) -> Decision:
        """Return the decision of a finished run."""
        path = self.folder / "decision.json"
        values = read_json(path)
        if "rule" not in values:
            raise HanmeError(f"{path}: not a decision: it has no rule")
        return validated(Decision, values, f"{path}: not a decision")

    @property
    def finished(self) -> bool:
        """Whether result and weights exist."""
        names = ("result.json", "model.safetensors")
        return all((self.folder / name).exists() for name in names)

    def result(self) -> dict[str, Any]:
        """Return the result of a finished run; refuse files of another run."""
        if not self.finished:
            raise HanmeError(f"{self.folder}: this run is not finished; continue it with --resume")
        path = self.folder / "result.json"
        result = check_result(read_json(path), path)
        for name, expected in result.pop("files").items():
            part = self.folder / name
            if not part.exists() or checksum(part) not in (None, expected):
                raise HanmeError(
                    f"{part}: it is missing or of another run; restore it from a copy, or remove "
                    "result.json and continue with --resume"
                )
        return result

    def metrics(self) -> list[dict[str, float]]:
        """Return a row per scored epoch; a line truncated by a crash is not counted."""
        return read_metrics(self.folder / "metrics.jsonl", self.config.training.every)

    def write_metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Replace the rows of all epochs."""
        with replacing(self.folder / "metrics.jsonl") as path:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def train(self, trainer: Trainer, on_epoch: Callable[[Epoch], None]) -> None:
        """Train to the end from the last checkpoint, and write one every few epochs.

        In batches, also every few minutes. Of several ranks, only the first reads and writes.
        """
        checkpoint, metrics = (self.folder / name for name in (CHECKPOINT, "metrics.jsonl"))
        state = ranks.from_first(lambda: self._state(checkpoint) if checkpoint.exists() else None)
        if state is not None:
            check_state(checkpoint, trainer, *state)
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

            def record(epoch: Epoch) -> None:
                log.write(json.dumps(asdict(epoch)) + "\n")
                log.flush()
                due = epoch.epoch % SAVED < trainer.config.every
                if due or trainer.finished:
                    self._save(trainer)
                on_epoch(epoch)

            saved = time.monotonic()

            def on_step() -> None:
                nonlocal saved
                if time.monotonic() - saved >= SECONDS:
                    self._save(trainer)
                    saved = time.monotonic()

            trainer.on_step = on_step
            trainer.run(record)

    def _save(self, trainer: Trainer) -> None:
        tensors, numbers = trainer.state()
        save_tensors(self.folder / CHECKPOINT, tensors, numbers | {"run": self._number()})

    def _state(self, checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
        tensors, numbers = load_tensors(checkpoint)
        if numbers.pop("run", None) not in (None, self._number()):
            raise HanmeError(
                f"{checkpoint}: it was written with other files than {', '.join(BEGUN)} beside it; "
                "restore them from a copy, or remove it and continue with --resume"
            )
        return tensors, numbers

    def _number(self) -> float:
        """Return a number that identifies the files written before the first epoch."""
        text = " ".join(str(checksum(self.folder / name)) for name in BEGUN)
        return float(int(sha256(text.encode()).hexdigest()[:12], 16))

    def discard(self) -> None:
        """Remove the files of a run that failed; leave all others."""
        for name in (*BEGUN, "metrics.jsonl", CHECKPOINT):
            (self.folder / name).unlink(missing_ok=True)

    def model(self, graph: Graph) -> Stacked:
        """Load the model of a finished run for a graph."""
        path, spec = self.folder / "model.safetensors", self.folder / "stack.json"
        values, (tensors, _) = read_json(spec), load_tensors(path)
        refuse_non_finite(path, tensors)
        trees = values.pop("trees", None)
        if trees is not None:
            tensors[trees["tensor"]] = self._read_trees(trees["sha256"])
        network = None
        weights = {k.removeprefix("network."): v for k, v in tensors.items() if k[:8] == "network."}
        with fitting(path):
            if self.config.model.name != LINEAR:
                built = build_network(self.config.model, graph)
                size_weights(built, graph)
                built.load_state_dict(weights)
                network = Network(built.eval(), self.config.training.batch_size)
            model = load_learner(values, tensors, graph, network)
        if not isinstance(model, Stacked):
            raise HanmeError(f"{spec}: not a stacked model")
        return model

    def _read_trees(self, digest: str) -> Tensor:
        path = self.folder / "trees.ubj"
        with name_path(path):
            raw = regular(path).read_bytes()
        if sha256(raw).hexdigest() != digest:
            raise HanmeError(f"{path}: it has changed since it was written; {REMEDY}")
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    def _write_model(self, model: Stacked) -> None:
        values, tensors = model.state()
        for name in [name for name in tensors if name.endswith(".booster")]:
            raw = tensors.pop(name).numpy().tobytes()
            with replacing(self.folder / "trees.ubj") as path:
                path.write_bytes(raw)
            values["trees"] = {"tensor": name, "sha256": sha256(raw).hexdigest()}
        refuse_non_finite(self.folder / "model.safetensors", tensors)
        write_json(self.folder / "stack.json", values)
        save_tensors(self.folder / "model.safetensors", tensors, {})

    def finish(self, model: Stacked, decision: Decision, result: dict[str, Any]) -> None:
        """Write model, decision and, last, the result; the checkpoint is no longer needed."""
        write_json(self.folder / "decision.json", decision.model_dump(mode="json"))
        self._write_model(model)
        names = (*BEGUN, *ENDED)
        checksums = {name: found for name in names if (found := checksum(self.folder / name))}
        write_json(self.folder / "result.json", result | {"files": checksums})
        (self.folder / CHECKPOINT).unlink(missing_ok=True)
