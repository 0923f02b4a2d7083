"""Progress, scores and tables on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID, TextColumn
from rich.table import Table

if TYPE_CHECKING:
    from hanme.training import Epoch

LINE_SECONDS = 5.0
"""Seconds between lines where output is piped: a log of an hour stays below 1,000 lines."""
DRAW_SECONDS = 0.1
"""Seconds between updates of the bar: fast enough to look alive."""


class TrainingProgress:
    """The progress of a training, for a bar or a line of text.

    Within an epoch it counts finished parts of the attention; the epoch before says how many there
    are.
    """

    def __init__(self, bar: Progress) -> None:
        self.bar, self.epochs = bar, 0
        self.task = bar.add_task("loading", total=None, scores="")
        self.epoch, self.scores = 0, ""
        self.parts, self.parts_per_epoch = 0, 0
        self.began = self.drawn = time.monotonic()
        self.started = self.finalizing = False

    def plan(self, title: str, epochs: int) -> None:
        """Set the title and the maximum number of epochs."""
        self.epochs = epochs
        self.bar.update(self.task, description=title, total=epochs)

    def on_start(self, notes: list[str]) -> None:
        """Print notes on the graph and the cost of the training."""
        print_notes(notes)
        self.parts = 0
        self.started = True

    def on_part(self) -> None:
        """Count a part of an epoch; update the bar if it is due."""
        self.parts += 1
        if time.monotonic() - self.drawn > DRAW_SECONDS:
            self._draw()

    def on_epoch(self, epoch: Epoch) -> None:
        """Count an epoch."""
        micro, macro = 100 * epoch.val_micro, 100 * epoch.val_macro
        self.scores = f"loss {epoch.loss:.3f}  val micro {micro:.1f} macro {macro:.1f}"
        self.epoch, self.parts_per_epoch, self.parts = epoch.epoch, self.parts, 0
        self._draw()

    def on_finalize(self) -> None:
        """Note that the epochs are over."""
        self.finalizing = True
        self.bar.update(self.task, description="fitting the linear part", completed=self.epochs)

    @property
    def share(self) -> float:
        """The share of the current epoch that is done; 0 in the first epoch."""
        return min(1.0, self.parts / self.parts_per_epoch) if self.parts_per_epoch else 0.0

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        if not self.finalizing:
            self.bar.update(self.task, completed=self.epoch + self.share, scores=self.scores)

    def __str__(self) -> str:
        seconds = f"{time.monotonic() - self.began:.0f} s"
        if self.finalizing:
            return f"{seconds}: fitting the linear part and the thresholds  {self.scores}".rstrip()
        if not self.epoch and not self.parts:
            return f"{seconds}: {'preparing' if self.started else 'loading'}"
        more = self.share and self.epoch < self.epochs
        within = f" and {self.share:.0%} of the next" if more else ""
        return f"{seconds}: {self.epoch} of {self.epochs} epochs{within}  {self.scores}".rstrip()


@contextmanager
def show_epochs() -> Iterator[TrainingProgress]:
    """Show the progress of a training: a bar on a terminal, a line every few seconds elsewhere."""
    from hanme.ops.streaming.blocks import watching

    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[scores]}"))
    console, done = Console(stderr=True), threading.Event()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        progress = TrainingProgress(bar)

        def write() -> None:
            while not done.wait(LINE_SECONDS):
                print(progress, file=sys.stderr, flush=True)

        writer = threading.Thread(target=write, daemon=True)
        if not console.is_terminal:
            writer.start()
        try:
            with watching(progress.on_part):
                yield progress
        finally:
            done.set()
            if writer.is_alive():
                writer.join()


@contextmanager
def show_progress(title: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    """Show a progress bar on a terminal, nothing where output is piped."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task(escape(title), total=total)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes to stderr, apart from the output of the command."""
    for note in notes:
        print(printable(note), file=sys.stderr)


def print_scores(scores: dict[str, Any]) -> None:
    """Print micro and macro F1 by split and, where the decision rules differ, by rule."""
    if all(by_split == scores["with_fallback"] for by_split in scores.values()):
        scores = {"any": scores["with_fallback"]}
    _print_f1("decision rule", scores, ("train", "val", "test"))


def _print_f1(head: str, scores: dict[str, Any], parts: Sequence[str]) -> None:
    rows = [
        {head: name.replace("_", " ")} | f1_columns(by_split, parts)
        for name, by_split in scores.items()
    ]
    print_table(rows, title="F1 (%)", width=100)


def f1_columns(scores: dict[str, Any], parts: Sequence[str]) -> dict[str, float | None]:
    """Return micro and macro F1 by column, such as ``val micro``; None for a part without nodes."""
    return {
        f"{part} {f1}": scores.get(part, {}).get(f1) for part in parts for f1 in ("micro", "macro")
    }


ADVICE = {
    "majority": "It is no better than always predicting the most common label.",
    "linear": "Use --model linear, which is faster, or try other metapaths (-m), --encoder direct "
    "or more labelled nodes.",
}


def print_baselines(model: str, result: dict[str, Any]) -> None:
    """Print the scores of a model next to the baselines, with advice if it does not beat them."""
    scores = result["scores"]
    own = scores.get("decided", scores["with_fallback"])
    rows = {name: other for name, other in result["baselines"].items() if name != model}
    _print_f1("compared with baselines", rows | {model: own}, ("val", "test"))
    for name, advice in ADVICE.items():
        other = rows.get(name, {}).get("val")
        if other is None or "val" not in own:
            continue
        if own["val"]["micro"] <= other["micro"] and own["val"]["macro"] <= other["macro"]:
            print(f"On validation nodes {model} does not beat {name}. {advice}")
        elif name == "majority" and "decided" in scores and own["val"]["micro"] < other["micro"]:
            print(
                f"On validation nodes {model} has a smaller micro F1 than {name}: thresholds for "
                "macro F1 assign rare labels to many nodes. Try --decide micro."
            )


def print_table(
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str | None = None,
    caption: str | None = None,
    width: int = 160,
) -> None:
    """Print a table of plain text, without markup or colours.

    Args:
        rows: Values by column; text is aligned to the left, numbers to the right.
        title: A line above the table.
        caption: Text below the table.
        width: Width in characters where output is piped; otherwise that of the terminal.
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


def printable(text: str) -> str:
    """Return text of a user's table without characters that control a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
