"""Box plots of test scores over seeds, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure

from hanme.experiments.curves import save_figure
from hanme.experiments.summary import AVERAGES, RULES

WIDTH, ROW, ENDS = 8.0, 0.3, 1.5  # inches


def draw_boxes(rows: Sequence[Mapping[str, Any]], title: str, rule: str, stem: Path) -> None:
    """Draw micro and macro F1 on test nodes under a decision rule, side by side.

    Each row of a report gets a box, a dot per seed, and a diamond for each published figure. The
    scale fits the boxes: a seed that is far off is an arrow at the edge, with its score.
    """
    figure = Figure(figsize=(WIDTH, ENDS + ROW * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(AVERAGES), sharey=True)
    for axes, average in zip(panels, AVERAGES, strict=True):
        values = [row[f"{rule}.test.{average}"]["values"] for row in rows]
        known = [
            (place, figures[average])
            for place, row in enumerate(rows)
            for figures in row["published"]
            if figures["rule"] == rule
        ]
        _panel(axes, values, known)
        axes.set_title(f"{average} F1 (%)", fontsize=9)
    panels[0].set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=9)
    panels[0].invert_yaxis()
    figure.suptitle(f"{title}: test nodes, {RULES[rule]}", fontsize=10)
    below = "boxes and dots: seeds; diamonds: published; arrows: seeds beyond the scale"
    figure.supxlabel(below, fontsize=8)
    save_figure(figure, stem)


def _panel(
    axes: Axes, values: Sequence[Sequence[float]], known: Sequence[tuple[int, float]]
) -> None:
    """Draw a box per row, on a scale that holds all whiskers and published figures."""
    boxes = [boxplot_stats(scores)[0] for scores in values]
    inside = [box[end] for box in boxes for end in ("whislo", "whishi")]
    inside += [score for _, score in known]
    low, high = min(inside), max(inside)
    beyond = (high - low) / 2
    near = [x for scores in values for x in scores if low - beyond <= x <= high + beyond]
    low, high = min(low, *near), max(high, *near)
    margin = 0.12 * (high - low) or 1.0
    axes.bxp(
        boxes, positions=range(len(boxes)), widths=0.6, showfliers=False, orientation="horizontal"
    )
    for place, scores in enumerate(values):
        shown = [score for score in scores if low <= score <= high]
        axes.plot(shown, [place] * len(shown), "o", color="C0", markersize=3, alpha=0.6)
        for score in set(scores) - set(shown):
            edge, arrow = (low - margin, "<") if score < low else (high + margin, ">")
            axes.plot(edge, place, arrow, color="C0", markersize=5, clip_on=False)
            side = 1 if score < low else -1
            axes.annotate(
                f"{score:.1f}", (edge, place), (6 * side, 0), textcoords="offset points",
                va="center", ha="left" if side > 0 else "right", fontsize=7,
            )  # fmt: skip
    for place, score in known:
        axes.plot(score, place, "D", color="C1", markersize=4)
    axes.set_xlim(low - margin, high + margin)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
