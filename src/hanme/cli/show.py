"""Progress, scores and tables on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from hanme.common.progress import Stage, listening
from hanme.common.text import duration, printable

LINE_SECONDS = 5.0
"""Seconds between lines where output is piped: a log of an hour stays below 1,000 lines."""


class TrainingProgress:
    """The stages of a training: a bar on a terminal, a line per stage elsewhere."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.stage, self.printed = bar, "loading", time.monotonic()
        self.task = bar.add_task(self.stage, total=None, text="")

    def __call__(self, stage: Stage) -> None:
        """Show a stage; where output is piped, again every few seconds if its end is known."""
        text = stage.text
        if stage.seconds_left is not None:  # training may stop early
            text = f"at most {duration(stage.seconds_left)} left, {text}"
        is_new, self.stage = stage.name != self.stage, stage.name
        if is_new:
            self.bar.remove_task(self.task)
            self.task = self.bar.add_task(stage.name, total=None, text="")
        total = None if stage.done is None else 1.0
        self.bar.update(self.task, total=total, completed=stage.done or 0.0, text=text)
        late = stage.done is not None and time.monotonic() - self.printed >= LINE_SECONDS
        if self.bar.disable and (is_new or late):
            print_notes([stage.name if is_new else f"{stage.name}: {stage.done:.0%}, {text}"])
            self.printed = time.monotonic()


@contextmanager
def show_stages() -> Iterator[None]:
    """Show the progress of a training."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    console = Console(stderr=True)
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        listening(TrainingProgress(bar)),
    ):
        yield


@contextmanager
def show_progress(title: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    """Show a progress bar on a terminal, nothing where output is piped."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task(escape(title), total=total)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes to stderr, apart from the output of the command."""
    for note in notes:
        print(printable(note), file=sys.stderr, flush=True)


def print_scores(scores: dict[str, Any]) -> None:
    """Print micro and macro F1 by split, with a row per decision rule if they differ."""
    if rules_differ(scores):
        _print_f1("decision rule", scores)
    else:
        print_table([f1_columns(scores["with_fallback"])], title="F1 (%)", width=100)


def rules_differ(scores: dict[str, Any]) -> bool:
    """Return whether the scores depend on the decision rule, as with several labels per node."""
    return any(by_split != scores["with_fallback"] for by_split in scores.values())


def _print_f1(head: str, scores: dict[str, Any]) -> None:
    rows = [
        {head: name.replace("_", " ")} | f1_columns(by_split) for name, by_split in scores.items()
    ]
    print_table(rows, title="F1 (%)", width=100)


def f1_columns(
    scores: dict[str, Any], parts: Sequence[str] = ("train", "val", "test")
) -> dict[str, float | None]:
    """Return micro and macro F1 by column, such as ``val micro``; None for a part without nodes."""
    return {
        f"{part} {f1}": scores.get(part, {}).get(f1) for part in parts for f1 in ("micro", "macro")
    }


PROBABILITIES = {
    "log loss": "log_loss",
    "ROC AUC": "roc_auc",
    "average precision": "average_precision",
    "lift of top 10 %": "lift",
    "Brier score": "brier",
    "calibration error": "error",
}


def print_baselines(model: str, result: dict[str, Any]) -> None:
    """Print the scores of a model next to the baselines, and if it does not beat them, say so.

    F1 depends on the decision rule; log loss and ROC-AUC judge the probabilities.
    """
    scores, own = result["scores"], result.get("probabilities", {})
    rows = {name: other for name, other in result["baselines"].items() if name != model}
    decided = scores.get("decided", scores["with_fallback"])
    _print_f1("model", {model: decided} | rows)
    part = "test" if "test" in own else "val"
    if part in own:
        print_probabilities({name: by[part] for name, by in ({model: own} | rows).items()}, part)
    mine = own.get("val", {})
    for name, advice in (
        ("majority", "No better than always predicting the most common label"),
        ("linear", "No better than --model linear, which is faster"),
    ):
        if name == "linear" and result.get("notes"):  # they say that the network was dropped
            continue
        other = rows.get(name, {}).get("val", {})
        if "log_loss" in mine and "log_loss" in other:
            better = mine.get("roc_auc", 1) > other.get("roc_auc", 0.5)
            if mine["log_loss"] >= other["log_loss"] and not better:
                print(f"{advice}, by log loss and ROC AUC on validation nodes.")


def print_probabilities(rows: Mapping[str, Mapping[str, float]], part: str = "") -> None:
    """Print the scores of probabilities, a row per model or part."""
    shown = {
        head: key for head, key in PROBABILITIES.items() if all(key in row for row in rows.values())
    }
    table = [
        {"model" if part else "nodes": name} | {head: f"{row[k]:.4f}" for head, k in shown.items()}
        for name, row in rows.items()
    ]
    print_table(table, title=f"Probabilities{f', {part} nodes' if part else ''}", width=120)


def print_table(
    rows: Sequence[Mapping[str, Any]], *, title: str, caption: str | None = None, width: int = 160
) -> None:
    """Print a table of plain text: text to the left, numbers to the right.

    The width holds where output is piped; else it is that of the terminal.
    """
    table = Table(title=title, caption=caption, title_justify="left")
    for column in rows[0] if rows else ():
        numbers = any(isinstance(row[column], int | float) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*map(_text, row.values()))
    own = None if Console().is_terminal else width
    Console(width=own, markup=False, emoji=False, highlight=False).print(table)


def _text(value: Any) -> str:
    """Return a value as a cell shows it: counts with separators, other numbers to two places."""
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
    return "–" if value is None else printable(str(value))
