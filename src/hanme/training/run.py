"""What a run leaves on disk, and how it survives being killed.

A run folder holds ``config.json``, for a user's own tables ``features.json`` (what was learnt of
their columns), ``metrics.jsonl`` (a line per epoch) and, while training,
``checkpoint.safetensors``; once finished ``model.safetensors`` (the best epoch's weights),
``predictions.parquet``, ``curves.svg``, ``curves.png`` and, last of all, ``result.json``. Every
file but ``metrics.jsonl`` is written aside and moved into place, so that it is whole or not there;
``metrics.jsonl`` is cut back to the checkpoint when a run is resumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets import FittedGraph, is_tables
from hanme.errors import HanmeError
from hanme.files import load_tensors, read_json, replacing, save_tensors, write_json
from hanme.training.config import RunConfig
from hanme.training.trainer import Epoch, Trainer

SAVED = 10
"""A checkpoint is written every so many epochs."""


class Run:
    """A run folder."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.config = config

    @classmethod
    def find(cls, folder: Path, config: RunConfig, *, resume: bool) -> Run | None:
        """The run to go on with, or None where a new one can be made; nothing is written."""
        if folder.exists() and not folder.is_dir():
            raise HanmeError(f"{folder}: it is a file; name a folder for the run")
        if not (folder / "config.json").exists():
            return None
        if not resume:
            raise HanmeError(
                f"{folder}: it already holds a run; go on with it with --resume, "
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
    def create(cls, folder: Path, config: RunConfig, data: HeteroData | None = None) -> Run:
        """A new run, with what is to be kept of its graph; one that is there is left alone."""
        cls.find(folder, config, resume=False)
        run = cls(folder, config)
        if data is not None and "fitted" in data:
            widths = {kind: data[kind].x.size(1) for kind in data.node_types}
            write_json(folder / "features.json", data.fitted | {"widths": widths})
        write_json(folder / "config.json", config.model_dump())
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run."""
        path = folder / "config.json"
        if not path.exists():
            raise HanmeError(f"{folder}: it holds no run (config.json is missing)")
        return cls(folder, RunConfig.make(read_json(path), str(path)))

    def fitted(self) -> FittedGraph | None:
        """What the run has learnt of the columns of its tables, if it was trained on tables."""
        if not is_tables(self.config.data.name):
            return None
        path = self.folder / "features.json"
        return FittedGraph.make(read_json(path), str(path))

    @property
    def finished(self) -> bool:
        return all((self.folder / name).exists() for name in ("result.json", "model.safetensors"))

    def result(self) -> dict[str, Any]:
        """What the finished run scored."""
        if not self.finished:
            raise HanmeError(f"{self.folder}: this run is not finished; go on with it: --resume")
        path = self.folder / "result.json"
        result = read_json(path)
        if not isinstance(result, dict) or not {"scores", "epochs", "best_epoch"} <= set(result):
            raise HanmeError(f"{path}: not the result of a run")
        return result

    def metrics(self) -> list[dict[str, float]]:
        """A row per epoch. A line cut off by a crash is not counted."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        rows = []
        for number, line in enumerate(lines, start=1):
            try:
                if line.endswith("\n"):
                    rows.append({name: float(value) for name, value in json.loads(line).items()})
                    rows[-1]["epoch"] = int(rows[-1]["epoch"])
            except (ValueError, TypeError, AttributeError, KeyError):
                raise HanmeError(f"{path} line {number}: not the row of an epoch") from None
        return rows

    def train(self, trainer: Trainer, on_epoch: Callable[[Epoch], None]) -> None:
        """Trains to the end from wherever the run was, with a checkpoint every few epochs."""
        checkpoint = self.folder / "checkpoint.safetensors"
        if checkpoint.exists():
            tensors, numbers = load_tensors(checkpoint)
            load_into(lambda: trainer.load_state(tensors, numbers), checkpoint)
        kept = [row for row in self.metrics() if row["epoch"] <= trainer.progress.epoch]
        with replacing(self.folder / "metrics.jsonl") as path:
            path.write_text("".join(json.dumps(row) + "\n" for row in kept))
        with (self.folder / "metrics.jsonl").open("a") as log:

            def record(epoch: Epoch) -> None:
                log.write(json.dumps(asdict(epoch)) + "\n")
                log.flush()
                due = epoch.epoch % SAVED < trainer.config.every
                if due or trainer.finished:
                    tensors, numbers = trainer.state()
                    save_tensors(checkpoint, tensors, numbers)
                on_epoch(epoch)

            trainer.run(record)

    def discard(self) -> None:
        """Takes away a run that came to nothing; what else is in the folder stays."""
        for name in ("config.json", "features.json", "metrics.jsonl", "checkpoint.safetensors"):
            (self.folder / name).unlink(missing_ok=True)

    def weights(self) -> dict[str, Tensor]:
        """The best epoch's weights."""
        path = self.folder / "model.safetensors"
        if not path.exists():
            raise HanmeError(f"{self.folder}: this run is not finished; go on with it: --resume")
        return load_tensors(path)[0]

    def finish(self, trainer: Trainer, result: dict[str, Any]) -> None:
        """Writes the weights and, last, the result; the checkpoint is no longer needed."""
        weights = {k: v.contiguous() for k, v in trainer.model.state_dict().items()}
        save_tensors(self.folder / "model.safetensors", weights, {})
        write_json(self.folder / "result.json", result)
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)


def load_into(load: Callable[[], Any], path: Path) -> None:
    """Runs ``load``; weights that do not fit are reported as a run of another model."""
    try:
        load()
    except (RuntimeError, KeyError, ValueError) as error:
        first = " ".join(str(error).split())[:200]
        raise HanmeError(
            f"{path}: weights of another model than config.json says: {first}"
        ) from None
