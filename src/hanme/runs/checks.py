"""Refuse the files of a run folder that are not what training writes, each in one line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from hanme.common import device
from hanme.common.files import parse_json, regular
from hanme.common.options import validated
from hanme.errors import HanmeError, one_line
from hanme.training import Epoch, Trainer

Scores = dict[str, dict[str, float]]

ROW = {field.name for field in fields(Epoch)}


class Result(BaseModel):
    """What ``result.json`` holds at least."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    scores: dict[str, Scores]
    epochs: int = Field(ge=0)
    best_epoch: int = Field(ge=0)
    baselines: dict[str, Scores] = {}
    seconds_per_epoch: float = 0.0
    peak_memory_mb: float = 0.0
    parameters: int = 0
    files: dict[str, str] = {}


def check_result(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the values of a ``result.json``."""
    found = validated(Result, values, f"{path}: not the result of a run").model_dump()
    parts = [
        part
        for by_name in (found["scores"], found["baselines"])
        for by_part in by_name.values()
        for part in by_part.values()
    ]
    if "with_fallback" not in found["scores"] or any(set(p) != {"micro", "macro"} for p in parts):
        raise HanmeError(f"{path}: not the result of a run: scores are missing")
    return found


def read_metrics(path: Path, every: int) -> list[dict[str, float]]:
    """Return the rows of a ``metrics.jsonl``, one per ``every`` epochs.

    The file may be missing. A line cut off by a crash is not counted.
    """
    lines = regular(path).read_bytes().splitlines(keepends=True) if path.exists() else []
    rows: list[dict[str, float]] = []
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            continue
        try:
            row = {name: float(value) for name, value in parse_json(line).items()}
        except (ValueError, TypeError, AttributeError, OverflowError):
            row = {}
        if not row.keys() >= ROW or not all(map(math.isfinite, row.values())):
            raise HanmeError(f"{path} line {number}: not the row of an epoch; {REMEDY}")
        before = rows[-1]["epoch"] if rows else 0
        if not 0 < row["epoch"] - before <= every:
            raise HanmeError(
                f"{path} line {number}: epoch {row['epoch']:g} after {before:g}, so rows are "
                f"missing or out of order; {REMEDY}"
            )
        row["epoch"] = int(row["epoch"])
        rows.append(row)
    return rows


REMEDY = "restore the file from a copy, or train again into another folder"


def check_state(
    path: Path, trainer: Trainer, tensors: Mapping[str, Tensor], numbers: Mapping[str, float]
) -> None:
    """Refuse a checkpoint that is not a state of this training."""
    refuse_non_finite(path, tensors)
    with fitting(path):
        epoch, best = int(numbers["epoch"]), int(numbers["best_epoch"])
        if not 0 <= best <= epoch <= trainer.config.epochs or math.isnan(numbers["best_score"]):
            raise ValueError(f"epoch {epoch}, the best {best}, of {trainer.config.epochs}")
        model = {name: value.shape for name, value in trainer.model.state_dict().items()}
        expected = {f"model.{name}": shape for name, shape in model.items()}
        if epoch:
            expected |= {f"best.{name}": shape for name, shape in model.items()}
        expected |= {"random": device.rng_state(device.chosen()).shape}
        weights = [p.shape for group in trainer.optimizer.param_groups for p in group["params"]]
        for name, tensor in tensors.items():
            if name.startswith("adam."):
                allowed = [torch.Size([]), weights[int(name.split(".")[1])]]
            else:
                free = name in ("recent", "easiest") or name.endswith(".fusion.mean")
                allowed = [expected.pop(name, tensor.shape if free else None)]
            if tensor.shape not in allowed:
                raise ValueError(f"{name} has the shape {list(tensor.shape)}")
        if expected:
            raise ValueError(f"{next(iter(expected))} is missing")
        if tensors["random"].dtype != torch.uint8:
            raise ValueError("random is not the state of a generator")


def refuse_non_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that are no numbers."""
    for name, tensor in tensors.items():
        if name != "recent" and tensor.is_floating_point() and not tensor.isfinite().all():
            raise HanmeError(
                f"{path}: {name} holds values that are not finite numbers; restore the file from a "
                "copy, or train again"
            )


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Report tensors of ``path`` that do not fit the model in one line."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        why = f"weights of another model than config.json says: {one_line(error)}"
        raise HanmeError(f"{path}: {why}") from None
