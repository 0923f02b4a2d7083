"""Figures of a benchmark, as SVG: box plots of test scores over seeds, and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hanme.common.files import replacing

RULES = {
    "with_fallback": "with fallback",
    "without_fallback": "HGB's rule",
    "expected_f1": "expected F1",
}
"""The decision rules that models are compared under, by their names in tables."""

AVERAGES = ("micro", "macro")

PANELS = {
    "loss": ("loss", "val_loss"),
    "micro F1 (%)": ("train_micro", "val_micro"),
    "macro F1 (%)": ("train_macro", "val_macro"),
}
"""What each row of panels shows of training nodes, left, and of validation nodes, right."""


def draw_boxes(rows: Sequence[Mapping[str, Any]], title: str, rule: str, path: Path) -> None:
    """Draw micro and macro F1 on test nodes under a decision rule, side by side.

    Each row of a report gets a box, a dot per seed, and a diamond for each published figure.
    """
    figure = Figure(figsize=(8, 1.5 + 0.3 * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(AVERAGES), sharey=True)
    for axes, average in zip(panels, AVERAGES, strict=True):
        values = [row[f"{rule}.test.{average}"]["values"] for row in rows]
        axes.boxplot(
            values, positions=range(len(rows)), widths=0.6, showfliers=False,
            orientation="horizontal",
        )  # fmt: skip
        for place, row in enumerate(rows):
            published = (f for f in row["published"] if f["rule"] == rule)
            known = [f[average] for f in published if average in f]
            axes.plot(values[place], [place] * len(values[place]), "o", ms=3, c="C0", alpha=0.6)
            axes.plot(known, [place] * len(known), "D", ms=4, c="C1")
        axes.set_title(f"{average} F1 (%)", fontsize=9)
        _tidy(axes)
    panels[0].set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=9)
    panels[0].invert_yaxis()
    figure.suptitle(f"{title}: test nodes, {RULES[rule]}", fontsize=10)
    figure.supxlabel("boxes and dots: seeds; diamonds: published", fontsize=8)
    _save(figure, path)


def draw_curves(runs: Mapping[str, Sequence[Mapping[str, float]]], path: Path) -> None:
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
            _tidy(axes)
        row[0].set_ylabel(title)
    for axes, nodes in zip(panels[0], ("training", "validation"), strict=True):
        axes.set_title(f"{nodes} nodes", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("epoch")
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    _save(figure, path)


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG; the same figure gives the same file."""
    with (
        rc_context({"svg.hashsalt": "hanme", "svg.fonttype": "none"}),
        replacing(path) as temporary,
    ):
        figure.savefig(temporary, metadata={"Date": None})
