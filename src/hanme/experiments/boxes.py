"""Box plots of test scores over seeds, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hanme.experiments.summary import AVERAGES, RULES
from hanme.runs.curves import save_figure


def draw_boxes(rows: Sequence[Mapping[str, Any]], title: str, rule: str, stem: Path) -> list[Path]:
    """Draw micro and macro F1 on test nodes under a decision rule.

    Each row of a report gets a box, a dot per seed, and a diamond for each published figure.
    """
    figure = Figure(figsize=(max(6.0, 1.0 * len(rows) + 2), 6), layout="constrained")
    places = list(range(1, len(rows) + 1))
    panels = figure.subplots(2, 1, sharex=True)
    for axes, average in zip(panels, AVERAGES, strict=True):
        values = [row[f"{rule}.test.{average}"]["values"] for row in rows]
        axes.boxplot(values, positions=places, widths=0.6, showfliers=False)
        for place, row, scores in zip(places, rows, values, strict=True):
            axes.plot([place] * len(scores), scores, "o", color="C0", markersize=3, alpha=0.6)
            for known in row["published"]:
                if known["rule"] == rule:
                    axes.plot(place, known[average], "D", color="C1", markersize=5)
        axes.set_title(f"{title}: test {average} F1, {RULES[rule]}", fontsize=10)
        axes.set_ylabel("F1 (%)")
        axes.grid(axis="y", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    names = [row["name"] for row in rows]
    panels[1].set_xticks(places, names, rotation=30, ha="right", fontsize=8)
    figure.supxlabel("boxes and dots: seeds; diamonds: published", fontsize=8)
    return save_figure(figure, stem)
