"""Any models on any graphs over several seeds: what to run, and the tables of what came out."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanme.experiments.boxes import draw_boxes
from hanme.experiments.configs import PACKAGED, changed_config, graph_name, look_up, override
from hanme.experiments.pool import Job
from hanme.experiments.summary import AVERAGES, RULES, cell, columns, slug, summarise
from hanme.files import replacing, write_json
from hanme.toml import read_toml
from hanme.training import Run, RunConfig
from hanme.training.curves import draw_curves

HGB_RULE = "without_fallback"
SHORT = 1.0
"""A figure that ours is more than so many points below counts as not reached."""

SHOWN = (("without_fallback", "test"), ("with_fallback", "test"), ("without_fallback", "val"))


@dataclass(frozen=True)
class Entry:
    """A row of the table: a model on a graph, with or without LTS.

    Args:
        model: The first part of a configuration file's name.
        graph: The second.
        lts: LTS's pace, or ``"none"``.
        values: The configuration.
    """

    model: str
    graph: str
    lts: str
    values: Mapping[str, Any]

    @classmethod
    def make(
        cls,
        model: str,
        graph: str,
        lts: str | None,
        folder: Path | None,
        changes: Mapping[str, Any],
    ) -> Entry:
        """A row from its configuration file, with ``changes`` by field; ``lts`` None is LTS as the
        configuration has it."""
        values = changed_config(model, graph, folder, changes)
        if lts == "none":
            values = override(values, {"training.lts": None})
        elif lts is not None:
            schedule = look_up(values, "training.lts") or {}
            values = override(values, {"training.lts": {**schedule, "pace": lts}})
        schedule = RunConfig.make(values).training.lts
        return cls(model, graph_name(graph), schedule.pace if schedule else "none", values)

    @property
    def name(self) -> str:
        return self.model if self.lts == "none" else f"{self.model} + LTS {self.lts}"

    def folder(self, runs: Path) -> Path:
        """Where its runs are, a folder per seed."""
        return runs / slug(f"{self.graph} {self.name}")

    def jobs(self, runs: Path, seeds: Sequence[int]) -> list[Job]:
        """A run per seed and where it goes."""
        return [
            (
                RunConfig.make(override(self.values, {"training.seed": seed})),
                self.folder(runs) / str(seed),
            )
            for seed in seeds
        ]


def report(
    entries: Sequence[Entry],
    runs: Path,
    seeds: Sequence[int],
    out: Path,
    *,
    command: str,
    failed: Mapping[Path, str],
) -> dict[str, Any]:
    """Writes ``benchmark.md``, ``.csv``, ``.json`` and, per graph, boxes and curves.

    An entry of which a run failed has no row: a mean is over all seeds or not at all.

    Args:
        entries: What was run.
        runs: Where.
        seeds: Over which seeds.
        out: The folder to write to.
        command: The command that makes it, for the reader.
        failed: What went wrong, by run folder.
    """
    lost = {folder.parent for folder in failed}
    kept = [entry for entry in entries if entry.folder(runs) not in lost]
    table: dict[str, Any] = {
        "command": command,
        "seeds": list(seeds),
        "rows": [_summary(entry, runs, seeds) for entry in kept],
        "failed": {str(folder.relative_to(runs)): why for folder, why in failed.items()},
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "benchmark.json", table)
    _write_csv(table["rows"], out / "benchmark.csv")
    for graph, rows in _by_graph(table["rows"]).items():
        draw_boxes(rows, graph, out / f"benchmark-{graph}")
        first = {e.name: e.folder(runs) / str(seeds[0]) for e in kept if e.graph == graph}
        metrics = {name: Run.open(folder).metrics() for name, folder in first.items()}
        draw_curves(metrics, out / f"benchmark-{graph}-curves")
    with replacing(out / "benchmark.md") as path:
        path.write_text(_markdown(table))
    return table


def published(graph: str, model: str) -> list[dict[str, Any]]:
    """What others report for a model on a graph."""
    figures = read_toml(PACKAGED / "published.toml")["figure"]
    return [f for f in figures if (f["graph"], f["model"]) == (graph, model)]


def _summary(entry: Entry, runs: Path, seeds: Sequence[int]) -> dict[str, Any]:
    found = summarise([Run.open(entry.folder(runs) / str(seed)) for seed in seeds])
    figures = published(entry.graph, entry.model) if entry.lts == "none" else []
    for figure in figures:
        for average in AVERAGES:
            ours = found[f"{figure['rule']}.test.{average}"]["mean"]
            figure[f"difference_{average}"] = round(ours - figure[average], 4)
    return {
        "name": entry.name,
        "model": entry.model,
        "graph": entry.graph,
        "lts": entry.lts,
        "published": figures,
        **found,
    }


def _by_graph(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    graphs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        graphs.setdefault(row["graph"], []).append(row)
    return graphs


def _write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A line per row: names, means and deviations, costs, and the first published figure."""
    own = ("model", "graph", "lts", "parameters", "seconds_per_epoch", "peak_memory_mb")
    keys = columns(SHOWN)
    theirs = ("micro", "macro", "rule", "source", "difference_micro", "difference_macro")
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        scores = [f"{key}.{part}" for key in keys for part in ("mean", "std")]
        writer.writerow([*own, *scores, *(f"published.{key}" for key in theirs)])
        for row in rows:
            figure = row["published"][0] if row["published"] else {}
            values = [row[key][part] for key in keys for part in ("mean", "std")]
            writer.writerow(
                [*(row[key] for key in own), *values, *(figure.get(key, "") for key in theirs)]
            )


def _markdown(table: dict[str, Any]) -> str:
    seeds = table["seeds"]
    lines = [
        "# The models side by side",
        "",
        f"Made by `{table['command']}`; do not edit.",
        "",
        "Test F1 in percent, mean ± standard deviation over all "
        f"{len(seeds)} seeds ({', '.join(map(str, seeds))}), none left out.",
        "A seed draws the validation nodes (a fifth of the labelled nodes outside the test set;",
        "tables of one's own say which), the weights and the dropout. The best epoch is chosen on",
        "validation nodes; where settings come from is said in their files. *HGB's rule*:",
        "every label over 0.5, be it none; *with fallback*, a node without one gets its most",
        "likely label. With one label per node the two are the same. Time and memory are medians",
        "over the seeds, of a process with one thread.",
    ]
    for graph, rows in _by_graph(table["rows"]).items():
        lines += ["", f"## {graph}", "", *_ours(rows)]
        lines += ["", f"![Test F1 on {graph}](benchmark-{graph}.svg)"]
        lines += ["", f"![F1 on {graph} by epoch, seed {seeds[0]}](benchmark-{graph}-curves.svg)"]
    lines += ["", "## Against published figures", "", *_against(table["rows"])]
    if table["failed"]:
        lines += ["", "## Left out", "", "No mean is given where a run failed or is not finished."]
        lines += ["", *(f"- {folder}: {why}" for folder, why in table["failed"].items())]
    return "\n".join(lines) + "\n"


def _ours(rows: Sequence[dict[str, Any]]) -> list[str]:
    heads = [f"{average}, {RULES[HGB_RULE]}" for average in AVERAGES] + ["published"]
    heads += [f"{average}, {RULES['with_fallback']}" for average in AVERAGES]
    heads += [f"validation {average}" for average in AVERAGES]
    heads += ["parameters", "s / epoch", "peak MB"]
    lines = ["| model | " + " | ".join(heads) + " |", "| --- " + "| ---: " * len(heads) + "|"]
    for row in rows:
        scores = [cell(row[key]) for key in columns(SHOWN)]
        figures = [f for f in row["published"] if f["rule"] == HGB_RULE]
        scores.insert(2, _pair(figures[0]["micro"], figures[0]["macro"]) if figures else "–")
        costs = [
            f"{row['parameters']:,}",
            f"{row['seconds_per_epoch']:.2f}",
            f"{row['peak_memory_mb']:.0f}",
        ]
        lines.append("| " + " | ".join([row["name"], *scores, *costs]) + " |")
    return lines


def _against(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Every published figure beside ours under the same rule; which are missed, and by whom."""
    pairs = [(row, figure) for row in rows for figure in row["published"]]
    if not pairs:
        return ["There is none for these models and graphs."]
    lines = [
        "Micro / macro F1, ours under the rule of the figure.",
        "",
        "| graph | model | published | rule | ours | difference | source |",
        "| --- | --- | ---: | --- | ---: | ---: | --- |",
    ]
    below = []
    for row, figure in pairs:
        ours = [row[f"{figure['rule']}.test.{average}"]["mean"] for average in AVERAGES]
        difference = f"{figure['difference_micro']:+.2f} / {figure['difference_macro']:+.2f}"
        cells = [
            row["graph"],
            row["name"],
            _pair(figure["micro"], figure["macro"]),
            RULES[figure["rule"]],
            f"{ours[0]:.2f} / {ours[1]:.2f}",
            difference,
            figure["source"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
        if min(figure["difference_micro"], figure["difference_macro"]) < -SHORT:
            below.append(f"- {row['graph']}, {row['name']}: {difference} ({figure['source']}).")
    sources = read_toml(PACKAGED / "published.toml")["sources"]
    used = dict.fromkeys(figure["source"] for _, figure in pairs)
    lines += ["", *(f"- {name}: {sources[name]}." for name in used), ""]
    if not below:
        return [*lines, f"None of ours is more than {SHORT:.0f} point below."]
    return [*lines, f"More than {SHORT:.0f} point below, in micro or macro F1:", "", *below]


def _pair(micro: float, macro: float) -> str:
    return f"{micro:.1f} / {macro:.1f}"
