"""Pictures of a run, as SVG and PNG: loss and F1 by epoch, and how far to trust probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanme.common.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, float]]


PANELS = {
    "loss": ("loss", "val_loss"),
    "micro F1 (%)": ("train_micro", "val_micro"),
    "macro F1 (%)": ("train_macro", "val_macro"),
}
"""What each row of panels shows of training nodes, left, and of validation nodes, right."""


def draw_curves(runs: Mapping[str, Rows], stem: Path, *, best: int | None = None) -> list[Path]:
    """Draw loss, micro and macro F1 on training and validation nodes by epoch, a line per run.

    Runs are rows of ``metrics.jsonl`` by the name to show; the ``best`` epoch is marked.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7.5), layout="constrained" if len(runs) > 1 else None)
    panels = figure.subplots(len(PANELS), 2, sharex=True, sharey="row")
    for row, (title, columns) in zip(panels, PANELS.items(), strict=True):
        for axes, column in zip(row, columns, strict=True):
            for name, rows in runs.items():
                scale = 1 if title == "loss" else 100
                points = [(p["epoch"], scale * p[column]) for p in rows if column in p]
                axes.plot(*zip(*points, strict=True) if points else ([], []), label=name, lw=1.2)
            if best is not None:
                axes.axvline(best, color="0.6", linewidth=0.8, linestyle="--")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(title)
    for axes, nodes in zip(panels[0], ("training", "validation"), strict=True):
        axes.set_title(f"{nodes} nodes", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("epoch")
    if len(runs) > 1:
        handles, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False
        )
    else:  # without a legend to make room for, fixed margins, which take half the time
        figure.subplots_adjust(0.09, 0.07, 0.98, 0.95, 0.06, 0.1)
    return save_figure(figure, stem)


def draw_reliability(probabilities: Mapping[str, Mapping[str, Any]], stem: Path) -> list[Path]:
    """Draw how often labels were there by how likely they were said to be: a reliability diagram.

    What probabilities are worth is given by part of the split, see :func:`hanme.decision.quality`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.6))
    axes = figure.subplots()
    figure.subplots_adjust(0.12, 0.11, 0.97, 0.97)
    axes.plot([0, 1], [0, 1], color="0.6", lw=0.8, ls="--")
    for part, found in probabilities.items():
        name = "validation" if part == "val" else part
        label = f"{name}: Brier {found['brier']:.3f}, error {found['error']:.3f}"
        counts, said, seen = zip(*found["reliability"], strict=True)
        (line,) = axes.plot(said, seen, lw=1.2, label=label)
        sizes = [8 + 60 * count / max(counts) for count in counts]
        axes.scatter(said, seen, s=sizes, color=line.get_color())
    axes.set_xlabel("probability that was given")
    axes.set_ylabel("share of labels that were there")
    axes.set_aspect("equal")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", fontsize=8, frameon=False)
    return save_figure(figure, stem)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as ``stem.svg`` and ``stem.png``; the same figure gives the same file."""
    from matplotlib import rc_context

    paths = []
    with rc_context({"svg.hashsalt": "hanme", "svg.fonttype": "none"}):
        if figure.get_layout_engine() is not None:  # it is laid out once, for both files
            figure.draw_without_rendering()
            figure.set_layout_engine(None)
        for suffix, metadata in ((".svg", {"Date": None}), (".png", {})):
            path = stem.with_suffix(suffix)
            with replacing(path) as temporary:
                figure.savefig(temporary, dpi=120, metadata=metadata)
            paths.append(path)
    return paths
