"""What several commands show: a bar while training, scores at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.experiments.pool import Job
    from hanme.training import Epoch


@contextmanager
def progress(title: str, epochs: int) -> Iterator[Callable[[Epoch], None]]:
    """A bar with loss and validation scores on a terminal; nothing where output is piped."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[scores]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=epochs, scores="")

        def on_epoch(epoch: Epoch) -> None:
            shown = (
                f"loss {epoch.loss:.3f}  val micro {100 * epoch.val_micro:.1f} "
                f"macro {100 * epoch.val_macro:.1f}"
            )
            bar.update(task, completed=epoch.epoch, scores=shown)

        yield on_epoch


def train_with_bar(jobs: Sequence[Job], processes: int) -> dict[Path, str]:
    """Trains many runs under a bar of runs; gives what went wrong, by folder."""
    from hanme.experiments.pool import train_all

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("runs", total=len(jobs))
        return train_all(jobs, processes, lambda _: bar.advance(task))


def refuse_failed(failed: dict[Path, str], total: int) -> None:
    """Ends a command of many runs with status 2 if one of them failed."""
    if failed:
        run, why = next(iter(failed.items()))
        raise HanmeError(f"{len(failed)} of {total} runs failed, first {run}: {why}")


def print_costs(costs: list[str]) -> None:
    """Says on a terminal or in a log, not in the output, what is about to be paid."""
    for line in costs:
        print(line, file=sys.stderr)


def print_scores(scores: dict[str, Any]) -> None:
    """Micro and macro F1 by split and, where it makes a difference, by decision rule."""
    table = Table(title="F1 (%)", title_justify="left")
    table.add_column("decision rule")
    if all(by_split == scores["with_fallback"] for by_split in scores.values()):
        scores = {"either": scores["with_fallback"]}
    for split in ("train", "val", "test"):
        table.add_column(f"{split} micro", justify="right")
        table.add_column(f"{split} macro", justify="right")
    for rule, by_split in scores.items():
        cells = [
            f"{by_split[split][average]:.2f}" if split in by_split else "–"
            for split in ("train", "val", "test")
            for average in ("micro", "macro")
        ]
        table.add_row(rule.replace("_", " "), *cells)
    Console(width=None if Console().is_terminal else 100).print(table)


def printable(text: str) -> str:
    """A text out of a table, harmless to a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
