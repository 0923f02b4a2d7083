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
        details, left = [stage.text] if stage.text else [], stage.seconds_left
        if left is not None:  # training may stop early
            details.insert(0, f"at most {duration(left)} left")
        is_new, self.stage = stage.name != self.stage, stage.name
        if is_new:
            self.bar.remove_task(self.task)
            self.task = self.bar.add_task(stage.name, total=None, text="")
        total = None if stage.done is None else 1.0
        self.bar.update(
            self.task, total=total, completed=stage.done or 0.0, text=", ".join(details)
        )
        late = stage.done is not None and time.monotonic() - self.printed >= LINE_SECONDS
        if self.bar.disable and (is_new or late):
            share = [] if stage.done is None else [f"{stage.done:.0%}"]
            print_notes([stage.name if is_new else f"{stage.name}: {', '.join(share + details)}"])
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


def f1_columns(
    scores: Mapping[str, Any], parts: Sequence[str] = ("train", "val", "test")
) -> dict[str, float | None]:
    """Return micro and macro F1 by column, such as ``val micro``; None for a part without nodes."""
    return {
        f"{part} {f1}": scores.get(part, {}).get(f1) for part in parts for f1 in ("micro", "macro")
    }


def print_rules(scores: Mapping[str, Any]) -> None:
    """Print micro and macro F1 by decision rule where they differ, as with several labels."""
    if any(by_part != scores["with_fallback"] for by_part in scores.values()):
        parts = [
            part for part in ("train", "val", "oof", "test") if part in scores["with_fallback"]
        ]
        rows = [
            {"decision rule": rule.replace("_", " ")} | f1_columns(by_part, parts)
            for rule, by_part in scores.items()
        ]
        print_table(rows, title="F1 (%) by decision rule", width=100)


PARTS = {"val": "Validation", "oof": "Out-of-fold training", "test": "Test"}
"""Titles of what is scored: ``oof`` stands in for validation nodes where these are few."""

METRICS = {
    "log loss": "log_loss",
    "ROC AUC": "roc_auc",
    "average precision": "average_precision",
    "lift of top 10 %": "lift",
    "Brier score": "brier",
    "calibration error": "error",
}
"""Scores of the probabilities, by the names in tables."""

RARE = 10
"""Number of nodes below which the F1 of a label is mostly chance."""


def print_scores(model: str, result: Mapping[str, Any], part: str) -> None:
    """Print the scores of a model and its baselines on a part of the split.

    F1 depends on the decision rule; log loss and ROC-AUC judge the probabilities.
    """
    own = result["probabilities"].get(part)
    decided = next(iter(result["scores"].values()))  # the run's own decision comes first
    scores = {} if own is None else {"model": decided[part] | own}
    baselines = {name: by[part] for name, by in result["baselines"].items() if part in by}
    scores |= {name: mine for name, mine in baselines.items() if own is None or name != model}
    if not scores:
        return
    columns = {
        model if name == "model" else name: _score_cells(result, name, part, mine)
        for name, mine in scores.items()
    }
    rows = [
        {"": head} | {name: cells.get(head, "–") for name, cells in columns.items()}
        for head in ("correct", "micro F1 (%)", "macro F1 (%)", *METRICS)
        if any(head in cells for cells in columns.values())
    ]
    print_table(rows, title=f"{PARTS[part]} nodes, with 95 % intervals", width=100)
    if own is None:
        print(f"Too few validation nodes selected nothing: {model} itself has no such scores.")
    labels = result.get("label_nodes", {}).get(part, {})
    rare = [f"{label} ({count})" for label, count in labels.items() if count < RARE]
    if rare:
        listed = ", ".join(rare[:10]) + (", ..." if len(rare) > 10 else "")
        print(printable(f"Labels with fewer than {RARE} of these nodes in macro F1: {listed}."))


def _score_cells(
    result: Mapping[str, Any], name: str, part: str, scores: Mapping[str, float]
) -> dict[str, str]:
    """Return what the table shows of a model, by row; results of 0.3.0 have no counts."""
    cells = {head: f"{scores[key]:.3f}" for head, key in METRICS.items() if key in scores}
    if count := result.get("counts", {}).get(name, {}).get(part):
        cells["correct"] = f"{count['correct']:,} of {count['nodes']:,}"
    for average in ("micro", "macro"):
        low, high = result["intervals"][name][part][average]
        interval = f" ({low:.0f} – {high:.0f})" if low < high else ""  # none without any mistake
        cells[f"{average} F1 (%)"] = f"{scores[average]:.1f}{interval}"
    return cells


def print_suspicion(result: Mapping[str, Any]) -> None:
    """Print which columns or relations are almost as good as the model alone, if some are."""
    from hanme.runs.suspicion import suspicion_lines

    for line in suspicion_lines(result.get("suspicion", {})):
        print(printable(line))


def print_comparison(model: str, result: Mapping[str, Any]) -> None:
    """State whether a model predicts no better than a baseline, by nodes that selected nothing."""
    part = "val" if "val" in result["probabilities"] else "oof"
    nodes = f"{PARTS[part].lower()} nodes"
    statements = {
        "majority": f"Always predicting the most common label is as good on {nodes}.",
        "linear": f"The linear model and trees are as good on {nodes}.",
    }
    if model == "hanme":
        statements["linear"] = (
            "The network adds nothing measurable here; predictions rely on the linear model and "
            "trees."
        )
    if model == "linear" or result.get("notes"):  # they say that the network was dropped
        del statements["linear"]
    mine = result["probabilities"].get(part, {})
    for name, statement in statements.items():
        other = result["baselines"].get(name, {}).get(part, {})
        if "log_loss" in mine and "log_loss" in other:
            better = mine.get("roc_auc", 1) > other.get("roc_auc", 0.5)
            if mine["log_loss"] >= other["log_loss"] and not better:
                print(statement)


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
