"""Progress, scores and tables on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID, TextColumn
from rich.table import Table

from hanme.common.text import printable

if TYPE_CHECKING:
    from hanme.training import Epoch

LINE_SECONDS = 5.0
"""Seconds between lines where output is piped: a log of an hour stays below 1,000 lines."""


class TrainingProgress:
    """The progress of a training: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.printed, self.epochs = bar, time.monotonic(), 0
        self.task = bar.add_task("loading", total=None, scores="")

    def plan(self, title: str, epochs: int) -> None:
        """Set the title and the maximum number of epochs."""
        self.epochs = epochs
        self.bar.update(self.task, description=escape(title), total=epochs)

    def on_epoch(self, epoch: Epoch) -> None:
        """Show an epoch."""
        micro, macro = 100 * epoch.val_micro, 100 * epoch.val_macro
        scores = f"loss {epoch.loss:.3f}  val micro {micro:.1f} macro {macro:.1f}"
        self.bar.update(self.task, completed=epoch.epoch, scores=scores)
        if self.bar.disable and time.monotonic() - self.printed >= LINE_SECONDS:
            self.printed = time.monotonic()
            print_notes([f"Epoch {epoch.epoch} of {self.epochs}: {scores}"])

    def on_finalize(self) -> None:
        """Show that the epochs are over."""
        text = "Fitting the linear part and the thresholds"
        self.bar.update(self.task, description=text, completed=self.epochs)
        if self.bar.disable:
            print_notes([text])


@contextmanager
def show_epochs() -> Iterator[TrainingProgress]:
    """Show the progress of a training."""
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[scores]}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield TrainingProgress(bar)


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
