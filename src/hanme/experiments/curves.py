"""Learning curves of several runs, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from hanme.common.files import replacing

PANELS = {
    "loss": ("loss", "val_loss"),
    "micro F1 (%)": ("train_micro", "val_micro"),
    "macro F1 (%)": ("train_macro", "val_macro"),
}
"""What each row of panels shows of training nodes, left, and of validation nodes, right."""


def draw_curves(runs: Mapping[str, Sequence[Mapping[str, float]]], stem: Path) -> None:
    """Draw loss, micro and macro F1 on training and validation nodes by epoch, a line per run.

    Runs are rows of ``metrics.jsonl`` by the name to show.
    """
    figure = Figure(figsize=(8, 7.5), layout="constrained")
    panels = figure.subplots(len(PANELS), 2, sharex=True, sharey="row")
    for row, (title, columns) in zip(panels, PANELS.items(), strict=True):
        for axes, column in zip(row, columns, strict=True):
            for name, rows in runs.items():
                scale = 1 if title == "loss" else 100
                scores = [scale * point[column] for point in rows]
                axes.plot([point["epoch"] for point in rows], scores, label=name, lw=1.2)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(title)
    for axes, nodes in zip(panels[0], ("training", "validation"), strict=True):
        axes.set_title(f"{nodes} nodes", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("epoch")
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save_figure(figure, stem)


def save_figure(figure: Figure, stem: Path) -> None:
    """Write a figure as ``stem.svg``; the same figure gives the same file."""
    with (
        rc_context({"svg.hashsalt": "hanme", "svg.fonttype": "none"}),
        replacing(stem.with_suffix(".svg")) as temporary,
    ):
        figure.savefig(temporary, metadata={"Date": None})
