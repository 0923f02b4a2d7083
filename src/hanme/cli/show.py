"""What several commands show: progress while training, scores at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID, TextColumn
from rich.table import Table

if TYPE_CHECKING:
    from hanme.training import Epoch


EVERY, SOON = 5.0, 0.1
"""After how many seconds a line is written, and the bar is drawn again."""


class Training:
    """How far training has come: what is called as it goes on, and what is shown of it.

    Within an epoch it counts the parts of attention that are done; how many an epoch has, the one
    before has told.
    """

    def __init__(self, bar: Progress) -> None:
        self.bar, self.epochs = bar, 0
        self.task = bar.add_task("loading", total=None, scores="")
        self.epoch, self.scores = 0, ""
        self.parts, self.parts_before = 0, 0
        self.began = self.drawn = time.monotonic()
        self.started = self.settling = False

    def plan(self, title: str, epochs: int) -> None:
        """Say what is trained, and for how many epochs at most."""
        self.epochs = epochs
        self.bar.update(self.task, description=title, total=epochs)

    def on_start(self, costs: list[str]) -> None:
        """Print what a run is about to cost, to stderr: it is not part of the output."""
        print_costs(costs)
        self.parts = 0
        self.started = True

    def on_part(self) -> None:
        """Note that a part of an epoch is done; draw the bar again if that is long ago."""
        self.parts += 1
        if time.monotonic() - self.drawn > SOON:
            self._draw()

    def on_epoch(self, epoch: Epoch) -> None:
        """Note that an epoch is done."""
        micro, macro = 100 * epoch.val_micro, 100 * epoch.val_macro
        self.scores = f"loss {epoch.loss:.3f}  val micro {micro:.1f} macro {macro:.1f}"
        self.epoch, self.parts_before, self.parts = epoch.epoch, self.parts, 0
        self._draw()

    def on_finalize(self) -> None:
        """Note that the epochs are over."""
        self.settling = True
        self.bar.update(self.task, description="fitting the linear model", completed=self.epochs)

    @property
    def share(self) -> float:
        """The share of the epoch that is done, as far as that is known."""
        return min(1.0, self.parts / self.parts_before) if self.parts_before else 0.0

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        if not self.settling:
            self.bar.update(self.task, completed=self.epoch + self.share, scores=self.scores)

    def __str__(self) -> str:
        passed = f"{time.monotonic() - self.began:.0f} s"
        if self.settling:
            return f"{passed}: fitting linear model, slopes and decision  {self.scores}".rstrip()
        if not self.epoch and not self.parts:
            return f"{passed}: {'preparing' if self.started else 'loading'}"
        more = self.share and self.epoch < self.epochs
        within = f" and {self.share:.0%} of the next" if more else ""
        return f"{passed}: {self.epoch} of {self.epochs} epochs{within}  {self.scores}".rstrip()


@contextmanager
def show_epochs() -> Iterator[Training]:
    """Show how training goes on: a bar on a terminal, a line every few seconds elsewhere."""
    from hanme.ops.streaming.blocks import watching

    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[scores]}"))
    console, done = Console(stderr=True), threading.Event()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        training = Training(bar)

        def write() -> None:
            while not done.wait(EVERY):
                print(training, file=sys.stderr, flush=True)

        writer = threading.Thread(target=write, daemon=True)
        if not console.is_terminal:
            writer.start()
        try:
            with watching(training.on_part):
                yield training
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


def print_costs(costs: list[str]) -> None:
    """Print what a run is about to cost, to stderr: it is not part of the output."""
    for line in costs:
        print(line, file=sys.stderr)


def print_scores(scores: dict[str, Any]) -> None:
    """Print micro and macro F1 by split and, where the decision rules differ, by rule."""
    if all(by_split == scores["with_fallback"] for by_split in scores.values()):
        scores = {"any": scores["with_fallback"]}
    rows = {rule.replace("_", " "): found for rule, found in scores.items()}
    _print_f1("decision rule", rows, ("train", "val", "test"))


def _print_f1(head: str, rows: dict[str, Any], parts: Sequence[str]) -> None:
    """Print micro and macro F1 by part of the split."""
    columns = list(product(parts, ("micro", "macro")))
    cells = [
        [name, *(f"{found[part][f1]:.2f}" if part in found else "–" for part, f1 in columns)]
        for name, found in rows.items()
    ]
    heads = [head, *(" ".join(column) for column in columns)]
    print_table(heads, cells, title="F1 (%)", width=100)


def print_worth(model: str, result: dict[str, Any]) -> None:
    """Print the model beside the baselines on the same nodes, and say so if it does not win."""
    scores = result["scores"]
    own = scores.get("decided", scores["with_fallback"])
    rows = {name: found for name, found in result["baselines"].items() if name != model}
    rows[model] = own
    _print_f1("what it is worth", rows, ("val", "test"))
    for name in ("majority", "linear"):
        other = rows.get(name, {}).get("val")
        if name == model or other is None or "val" not in own:
            continue
        if own["val"]["micro"] <= other["micro"] and own["val"]["macro"] <= other["macro"]:
            learnt = "It has learnt nothing." if name == "majority" else ADVICE
            print(f"On validation nodes {model} does not beat {name}. {learnt}")
        elif name == "majority" and "decided" in scores and own["val"]["micro"] < other["micro"]:
            print(f"On validation nodes {model} has a smaller micro F1 than {name}. {MICRO}")


def print_probabilities(probabilities: dict[str, Any]) -> None:
    """Print what probabilities are worth, by part of the split."""
    rows = [
        [part, f"{found['brier']:.4f}", f"{found['error']:.4f}"]
        for part, found in probabilities.items()
    ]
    if rows:
        print_table(["nodes", "Brier score", "calibration error"], rows, title="Probabilities")


ADVICE = (
    "Use --model linear, which is faster, or try other metapaths (-m), --encoder direct or more "
    "labelled nodes."
)


MICRO = (
    "It has learnt little, and thresholds for macro F1 then give rare labels to many nodes: try "
    "--decide micro."
)


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    caption: str | None = None,
    width: int = 160,
    left: int = 1,
) -> None:
    """Print a table of plain text, without markup or colours.

    It is as wide as the terminal, or ``width`` where output is piped. The first ``left`` columns
    are aligned to the left, the others to the right.
    """
    table = Table(*heads, title=title, caption=caption, title_justify="left")
    for column in table.columns[left:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    own = None if Console().is_terminal else width
    Console(width=own, markup=False, emoji=False, highlight=False).print(table)


def printable(text: str) -> str:
    """Return text of a user's table without characters that control a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
