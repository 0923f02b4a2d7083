"""From finished runs to a report: tables in Markdown, CSV and JSON, and figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hanme.common.files import remove_leftovers, replacing
from hanme.common.toml import read_toml
from hanme.experiments.benchmark import HERE, Entry, Experiment
from hanme.experiments.boxes import draw_boxes
from hanme.experiments.curves import draw_curves
from hanme.experiments.summary import AVERAGES, RULES, summarise
from hanme.runs import Run

Row = dict[str, Any]
"""A row of the report, as its JSON file holds it."""


def report(
    experiment: Experiment,
    entries: Sequence[Entry],
    runs: Path,
    seeds: Sequence[int],
    out: Path,
    *,
    command: str,
    failed: Mapping[Path, str],
) -> dict[str, Any]:
    """Write ``NAME.md``, ``.csv``, ``.json`` and figures; return what the JSON file holds.

    Run folders are in ``runs``. ``command`` tells the reader how the report was made. ``failed``
    has error messages by run folder; rows with a failed run are left out, as a mean is over all
    seeds.
    """
    lost = {folder.parent for folder in failed}
    kept = [entry for entry in entries if runs / entry.folder not in lost]
    first = {} if experiment.row else {entry.graph: entry for entry in reversed(kept)}
    rows = [_row(entry, runs, seeds, majority=True) for entry in first.values()]
    table: dict[str, Any] = {
        "command": command,
        "seeds": list(seeds),
        "rows": [*rows, *(_row(entry, runs, seeds) for entry in kept)],
        "failed": {str(folder.relative_to(runs)): why for folder, why in failed.items()},
    }
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    with replacing(out / f"{experiment.name}.json") as path:
        path.write_text(json.dumps(table, indent=2) + "\n")
    _write_csv(table["rows"], experiment.rule, out / f"{experiment.name}.csv")
    for graph, rows in _by_graph(table["rows"]).items():
        stems = experiment.stems(graph)
        if "boxes" in stems:
            draw_boxes(rows, graph, experiment.rule, out / stems["boxes"])
        if "curves" in stems:
            drawn = [entry for entry in kept if entry.graph == graph and entry.curves]
            opened = {entry.name: Run.open(entry.run_folder(runs, seeds[0])) for entry in drawn}
            curves = {name: run.metrics() for name, run in opened.items()}
            draw_curves(curves, out / stems["curves"])
    with replacing(out / f"{experiment.name}.md") as path:
        path.write_text(markdown(experiment, table), encoding="utf-8")
    return table


def markdown(experiment: Experiment, table: Mapping[str, Any]) -> str:
    """Return the report as Markdown, from what its JSON file holds."""
    seeds = ", ".join(map(str, table["seeds"]))
    about = experiment.about.strip().replace("{count}", str(len(table["seeds"])))
    made = f"Made by `{table['command']}`; do not edit."
    lines = [f"# {experiment.title}", "", made, "", about.replace("{seeds}", seeds)]
    for graph, rows in _by_graph(table["rows"]).items():
        lines += ["", f"## {graph}", "", *_scores(rows, experiment)]
        for kind, stem in experiment.stems(graph).items():
            shows = "Test F1" if kind == "boxes" else f"F1 by epoch, seed {table['seeds'][0]},"
            lines += ["", f"![{shows} on {graph}]({stem}.svg)"]
    lines += ["", "## Against published figures", "", *_against(table["rows"], experiment)]
    if table["failed"]:
        lines += ["", "## Left out", "", "No mean is given where a run failed or is not finished."]
        lines += ["", *(f"- {folder}: {why}" for folder, why in table["failed"].items())]
    return "\n".join(lines) + "\n"


def _row(entry: Entry, runs: Path, seeds: Sequence[int], *, majority: bool = False) -> Row:
    """Return the row of an entry, or of the most common labels, which its runs have scored, too."""
    results = [Run.open(entry.run_folder(runs, seed)).result() for seed in seeds]
    summary = summarise(results, majority=majority)
    published = () if majority else entry.published
    return {
        "name": "majority" if majority else entry.name,
        "model": "majority" if majority else entry.model,
        "graph": entry.graph,
        "lts": "none" if majority else entry.lts,
        "published": [figure | _differences(figure, summary) for figure in published],
        **summary,
    }


def _differences(figure: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, float]:
    """Return our means minus a published figure, under the rule of the figure."""
    means = {average: ours[f"{figure['rule']}.test.{average}"]["mean"] for average in AVERAGES}
    return {f"difference_{name}": round(mean - figure[name], 4) for name, mean in means.items()}


def _by_graph(rows: Sequence[Row]) -> dict[str, list[Row]]:
    graphs: dict[str, list[Row]] = {}
    for row in rows:
        graphs.setdefault(row["graph"], []).append(row)
    return graphs


def _columns(rows: Sequence[Row], rule: str) -> dict[str, str]:
    """Return the headings of the score columns by key; the scores under ``rule`` come first.

    A rule that some runs were not scored under has no column.
    """
    rules = [rule, *(other for other in RULES if other != rule)]
    heads = {f"{r}.test.{a}": f"{a}, {RULES[r]}" for r in rules for a in AVERAGES}
    heads |= {f"{rule}.val.{average}": f"validation {average}" for average in AVERAGES}
    return {key: head for key, head in heads.items() if all(key in row for row in rows)}


def _write_csv(rows: Sequence[Row], rule: str, path: Path) -> None:
    """Write a line per row: names, means and deviations, costs, and the first published figure."""
    own = ("name", "model", "graph", "lts", "parameters", "seconds_per_epoch", "peak_memory_mb")
    theirs = ("micro", "macro", "rule", "source", "difference_micro", "difference_macro")
    parts = [(key, part) for key in _columns(rows, rule) for part in ("mean", "std")]
    heads = [*own, *(f"{key}.{part}" for key, part in parts), *(f"published.{k}" for k in theirs)]
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        for row in rows:
            figure = row["published"][0] if row["published"] else {}
            scores = [row[key][part] for key, part in parts]
            known = [figure.get(key, "") for key in theirs]
            writer.writerow([*(row[key] for key in own), *scores, *known])


def _scores(rows: Sequence[Row], experiment: Experiment) -> list[str]:
    """Return the table of one graph."""
    columns = _columns(rows, experiment.rule)
    costs = ["parameters", "s / epoch", "peak MB"] if experiment.costs else []
    heads = ["published micro", "published macro", *columns.values(), *costs]
    lines = [_line(["model", *heads]), "| --- " + "| ---: " * len(heads) + "|"]
    for row in rows:
        known = next((f for f in row["published"] if f["rule"] == experiment.rule), None)
        theirs = [f"{known[average]:.1f}" if known else "–" for average in AVERAGES]
        ours = [f"{row[key]['mean']:.2f} ± {row[key]['std']:.2f}" for key in columns]
        time, memory = f"{row['seconds_per_epoch']:.2f}", f"{row['peak_memory_mb']:.0f}"
        paid = [f"{row['parameters']:,}", time, memory] if costs else []
        lines.append(_line([row["name"], *theirs, *ours, *paid]))
    return lines


def _against(rows: Sequence[Row], experiment: Experiment) -> list[str]:
    """Return every published figure beside ours, and the rows that fall short of one."""
    pairs = [(row, figure) for row in rows for figure in row["published"]]
    if not pairs:
        return ["There are none for these models and graphs."]
    heads = ["graph", "model", "published", "rule", "ours", "difference", "source"]
    lines = ["Micro / macro F1, ours under the rule of the figure.", "", _line(heads)]
    lines += ["| --- | --- | ---: | --- | ---: | ---: | --- |"]
    below = []
    for row, figure in pairs:
        ours = [row[f"{figure['rule']}.test.{average}"]["mean"] for average in AVERAGES]
        differences = [figure[f"difference_{average}"] for average in AVERAGES]
        theirs = " / ".join(f"{figure[average]:.1f}" for average in AVERAGES)
        means = " / ".join(f"{mean:.2f}" for mean in ours)
        difference = " / ".join(f"{points:+.2f}" for points in differences)
        names, source = [row["graph"], row["name"]], figure["source"]
        lines.append(_line([*names, theirs, RULES[figure["rule"]], means, difference, source]))
        if min(differences) < -experiment.tolerance:
            below.append(f"- {', '.join(names)}: {difference} ({source}).")
    texts = read_toml(HERE / "published.toml")["sources"]
    used = dict.fromkeys(figure["source"] for _, figure in pairs)
    lines += ["", *(f"- {name}: {texts[name]}." for name in used), ""]
    points = f"{experiment.tolerance:g} point{'s' * (experiment.tolerance != 1)}"
    how = f"more than {points} below" if experiment.tolerance else "below"
    if not below:
        return [*lines, f"None of ours is {how}."]
    return [*lines, f"{how.capitalize()}, in micro or macro F1:", "", *below]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
