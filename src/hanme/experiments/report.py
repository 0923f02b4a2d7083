"""From finished runs to a report: tables in Markdown, JSON and LaTeX, and figures."""

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
from hanme.experiments.table import Table, number
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
    """Write ``NAME.md``, ``.json``, ``.tex`` and figures; return what the JSON file holds.

    Run folders are in ``runs``. ``failed`` has error messages by run folder; rows with a failed run
    are left out, as a mean is over all seeds.
    """
    lost = {folder.parent for folder in failed}
    kept = [entry for entry in entries if runs / entry.folder not in lost]
    table: dict[str, Any] = {
        "command": command,
        "seeds": list(seeds),
        "rows": [_row(entry, runs, seeds) for entry in kept],
        "failed": {str(folder.relative_to(runs)): why for folder, why in failed.items()},
    }
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    texts = {"json": json.dumps(table, indent=2) + "\n", "tex": latex(experiment, table)}
    texts["md"] = markdown(experiment, table)
    for suffix, text in texts.items():
        with replacing(out / f"{experiment.name}.{suffix}") as path:
            path.write_text(text, encoding="utf-8")
    for graph, rows in _by_graph(table["rows"]).items():
        name = f"{experiment.name}-{graph}"
        draw_boxes(rows, graph, experiment.rule, out / f"{name}.svg")
        drawn = [entry for entry in kept if entry.graph == graph and entry.curves]
        folders = {entry.name: runs / entry.folder / str(seeds[0]) for entry in drawn}
        curves = {name: Run.open(folder).metrics() for name, folder in folders.items()}
        draw_curves(curves, out / f"{name}-curves.svg")
    return table


def markdown(experiment: Experiment, table: Mapping[str, Any]) -> str:
    """Return the report as Markdown, from what its JSON file holds."""
    seeds = ", ".join(map(str, table["seeds"]))
    about = experiment.about.strip().replace("{count}", str(len(table["seeds"])))
    made = f"Made by `{table['command']}`; do not edit."
    lines = [f"# {experiment.title}", "", made, "", about.replace("{seeds}", seeds)]
    for graph, rows in _by_graph(table["rows"]).items():
        scores = _score_table(graph, rows, experiment.rule)
        lines += ["", f"## {graph}", "", *scores.markdown()]
        name, first = f"{experiment.name}-{graph}", table["seeds"][0]
        lines += ["", f"![Test F1 on {graph}]({name}.svg)"]
        lines += ["", f"![F1 by epoch, seed {first}, on {graph}]({name}-curves.svg)"]
    against = _against(table["rows"])
    lines += ["", f"## {against.title}", "", against.about]
    if against.rows:
        sources = read_toml(HERE / "published.toml")["sources"]
        used = dict.fromkeys(cells[-1] for cells in against.rows)
        lines += ["", *against.markdown(), "", *(f"- {name}: {sources[name]}." for name in used)]
    if table["failed"]:
        lines += ["", "## Left out", "", "No mean is given where a run failed or is not finished."]
        lines += ["", *_left_out(table["failed"])]
    return "\n".join(lines) + "\n"


def latex(experiment: Experiment, table: Mapping[str, Any]) -> str:
    """Return the tables of the report as LaTeX, from what its JSON file holds."""
    graphs = _by_graph(table["rows"]).items()
    tables = [_score_table(graph, rows, experiment.rule) for graph, rows in graphs]
    return "\n".join(line for one in (*tables, _against(table["rows"])) for line in one.latex())


def _left_out(failed: Mapping[str, str]) -> list[str]:
    """Return a line per row of the report and reason, with its seeds."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for folder, why in failed.items():
        row, seed = folder.rsplit("/", 1)
        seeds.setdefault((row, why), []).append(seed)
    return [f"- {row}, seeds {', '.join(some)}: {why}" for (row, why), some in seeds.items()]


def _row(entry: Entry, runs: Path, seeds: Sequence[int]) -> Row:
    """Return the row of an entry: scores over the seeds by rule, part of the split and average."""
    results = [Run.open(runs / entry.folder / str(seed)).result() for seed in seeds]
    row: Row = {
        "name": entry.name,
        "model": entry.model,
        "graph": entry.graph,
        "lts": entry.lts,
        "published": [],
        "parameters": results[0]["parameters"],
    }
    for cost in ("seconds_per_epoch", "peak_memory_mb"):
        row[cost] = statistics.median(result[cost] for result in results)
    scores = [result["scores"] | {"expected_f1": result["expected_f1"]} for result in results]
    for rule, average in product(RULES, AVERAGES):
        values = [one[rule]["test"][average] for one in scores]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values)
        row[f"{rule}.test.{average}"] = {"mean": mean, "std": spread, "values": values}
    for figure in entry.published:
        means = {name: row[f"{figure['rule']}.test.{name}"]["mean"] for name in AVERAGES}
        known = [name for name in AVERAGES if name in figure]
        differences = {f"difference_{k}": round(means[k] - figure[k], 4) for k in known}
        row["published"].append(figure | differences)
    return row


def _by_graph(rows: Sequence[Row]) -> dict[str, list[Row]]:
    graphs: dict[str, list[Row]] = {}
    for row in rows:
        graphs.setdefault(row["graph"], []).append(row)
    return graphs


def _score_table(graph: str, rows: Sequence[Row], rule: str) -> Table:
    """Return the table of one graph; scores under the experiment's rule come first."""
    rules = [rule, *(other for other in RULES if other != rule)]
    columns = {f"{r}.test.{a}": f"{a}, {RULES[r]}" for r in rules for a in AVERAGES}
    columns = {key: head for key, head in columns.items() if all(key in row for row in rows)}
    heads = ["model", *columns.values(), "parameters", "s / epoch", "peak MB"]
    cells = []
    for row in rows:
        scores = [f"{row[key]['mean']:.2f} ± {row[key]['std']:.2f}" for key in columns]
        time, memory = f"{row['seconds_per_epoch']:.2f}", f"{row['peak_memory_mb']:.0f}"
        cells.append([row["name"], *scores, f"{row['parameters']:,}", time, memory])
    return Table(graph, "", heads, cells)


def _against(rows: Sequence[Row]) -> Table:
    """Return every published figure beside ours."""
    cells = []
    for row in rows:
        for figure in row["published"]:
            theirs = " / ".join(number(figure, a) for a in AVERAGES)
            ours = [row[f"{figure['rule']}.test.{a}"] for a in AVERAGES]
            means = " / ".join(f"{one['mean']:.2f} ± {one['std']:.2f}" for one in ours)
            apart = [figure.get(f"difference_{a}") for a in AVERAGES]
            difference = " / ".join("–" if x is None else f"{x:+.2f}" for x in apart)
            name, rule = f"{row['graph']}, {row['name']}", RULES[figure["rule"]]
            cells.append([name, theirs, rule, means, difference, figure["source"]])
    heads = ["graph, model", "published", "rule", "ours", "difference", "source"]
    about = "Micro / macro F1, ours under the rule of the figure. –: not recorded."
    about = about if cells else "There are none for these models and graphs."
    return Table("Against published figures", about, heads, cells)
