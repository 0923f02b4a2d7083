"""Curves of F1 by epoch, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from hanme.common.files import replacing

Rows = Sequence[Mapping[str, float]]


def draw_curves(runs: Mapping[str, Rows], stem: Path, *, best: int | None = None) -> list[Path]:
    """Draw micro and macro F1 on training and validation nodes by epoch, a line per run.

    Args:
        runs: Rows of ``metrics.jsonl`` by the name to show.
        stem: Where to write: ``stem.svg`` and ``stem.png``.
        best: The epoch to mark.
    """
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, average in zip(panels, ("micro", "macro"), strict=True):
        for axes, (split, title) in zip(
            row, (("train", "training"), ("val", "validation")), strict=True
        ):
            for name, rows in runs.items():
                epochs = [point["epoch"] for point in rows]
                values = [100 * point[f"{split}_{average}"] for point in rows]
                axes.plot(epochs, values, label=name, linewidth=1.2)
            if best is not None:
                axes.axvline(best, color="0.6", linewidth=0.8, linestyle="--")
            axes.set_title(f"{average} F1, {title} nodes", fontsize=10)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[1]:
        axes.set_xlabel("epoch")
    for axes in panels[:, 0]:
        axes.set_ylabel("F1 (%)")
    if len(runs) > 1:
        handles, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False
        )
    return save_figure(figure, stem)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as ``stem.svg`` and ``stem.png``; the same figure gives the same file."""
    paths = []
    with rc_context({"svg.hashsalt": "hanme", "svg.fonttype": "none"}):
        for suffix, metadata in ((".svg", {"Date": None}), (".png", {})):
            path = stem.with_suffix(suffix)
            with replacing(path) as temporary:
                figure.savefig(temporary, dpi=120, metadata=metadata)
            paths.append(path)
    return paths
