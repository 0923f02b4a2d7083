"""From finished runs to a report: tables in Markdown and JSON, and figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hanme.common.files import remove_leftovers, replacing
from hanme.common.toml import read_toml
from hanme.experiments.benchmark import HERE, Entry, Experiment
from hanme.experiments.figures import AVERAGES, RULES, draw_boxes, draw_curves
from hanme.runs import Run

COSTS = ("seconds_per_epoch", "peak_memory_mb")

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
    """Write ``NAME.md``, ``.json`` and figures; return what the JSON file holds.

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
    for graph, rows in _by_graph(table["rows"]).items():
        names = experiment.file_names(graph)
        if "boxes" in names:
            draw_boxes(rows, graph, experiment.rule, out / names["boxes"])
        if "curves" in names:
            drawn = [entry for entry in kept if entry.graph == graph and entry.curves]
            opened = {entry.name: Run.open(entry.run_folder(runs, seeds[0])) for entry in drawn}
            curves = {name: run.metrics() for name, run in opened.items()}
            draw_curves(curves, out / names["curves"])
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
        lines += ["", f"## {graph}", "", *_score_table(rows, experiment)]
        for kind, name in experiment.file_names(graph).items():
            shows = "Test F1" if kind == "boxes" else f"F1 by epoch, seed {table['seeds'][0]},"
            lines += ["", f"![{shows} on {graph}]({name})"]
    lines += ["", "## Against published figures", "", *_against(table["rows"], experiment)]
    if table["failed"]:
        lines += ["", "## Left out", "", "No mean is given where a run failed or is not finished."]
        lines += ["", *(f"- {folder}: {why}" for folder, why in table["failed"].items())]
    return "\n".join(lines) + "\n"


def _row(entry: Entry, runs: Path, seeds: Sequence[int], *, majority: bool = False) -> Row:
    """Return the row of an entry, or of the most common labels, which its runs have scored, too.

    Scores have mean and standard deviation over the seeds, by rule, part of the split and average.
    """
    results = [Run.open(entry.run_folder(runs, seed)).result() for seed in seeds]
    row: Row = {
        "name": "majority" if majority else entry.name,
        "model": "majority" if majority else entry.model,
        "graph": entry.graph,
        "lts": "none" if majority else entry.lts,
        "published": [],
        "parameters": 0 if majority else results[0]["parameters"],
    }
    for cost in COSTS:
        row[cost] = 0.0 if majority else statistics.median(result[cost] for result in results)
    for rule, part, average in product(RULES, ("val", "test"), AVERAGES):
        values = [_scores(result, rule, majority)[part][average] for result in results]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values)
        row[f"{rule}.{part}.{average}"] = {"mean": mean, "std": spread, "values": values}
    for figure in () if majority else entry.published:
        means = {name: row[f"{figure['rule']}.test.{name}"]["mean"] for name in AVERAGES}
        differences = {f"difference_{k}": round(means[k] - figure[k], 4) for k in AVERAGES}
        row["published"].append(figure | differences)
    return row


def _scores(result: Mapping[str, Any], rule: str, majority: bool) -> Any:
    """Return the scores of a result by part of the split and average."""
    if majority:
        return result["baselines"]["majority"]
    return result["expected_f1"] if rule == "expected_f1" else result["scores"][rule]


def _by_graph(rows: Sequence[Row]) -> dict[str, list[Row]]:
    graphs: dict[str, list[Row]] = {}
    for row in rows:
        graphs.setdefault(row["graph"], []).append(row)
    return graphs


def _score_table(rows: Sequence[Row], experiment: Experiment) -> list[str]:
    """Return the table of one graph; scores under the experiment's rule come first."""
    rule = experiment.rule
    rules = [rule, *(other for other in RULES if other != rule)]
    columns = {f"{r}.test.{a}": f"{a}, {RULES[r]}" for r in rules for a in AVERAGES}
    columns |= {f"{rule}.val.{average}": f"validation {average}" for average in AVERAGES}
    columns = {key: head for key, head in columns.items() if all(key in row for row in rows)}
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
