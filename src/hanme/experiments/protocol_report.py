"""The report on protocols, in Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hanme.common.files import remove_leftovers, replacing
from hanme.common.toml import read_toml
from hanme.experiments.benchmark import HERE, Entry
from hanme.experiments.figures import AVERAGES
from hanme.experiments.protocols import RULES, Tested, row_name, score
from hanme.experiments.table import Table, number

TEXTS = read_toml(HERE / "protocols.toml")

DEFAULT = "without_fallback"
"""The rule of the tables of pairs and labels: that of most published figures."""


def report(
    entries: Sequence[Entry],
    runs: Path,
    seeds: Sequence[int],
    out: Path,
    *,
    command: str,
    failed: Mapping[Path, str],
) -> dict[str, Any]:
    """Write ``protocols.md``, ``.json``, ``.tex`` and ``.csv``; return what the JSON file holds.

    ``failed`` has error messages by run folder; rows with a failed run are left out.
    """
    lost = {folder.parent for folder in failed}
    kept = [entry for entry in entries if runs / entry.folder not in lost]
    table: dict[str, Any] = {"command": command, "seeds": list(seeds)}
    table |= score([Tested.read(entry, runs, seeds) for entry in kept])
    table["failed"] = {str(folder.relative_to(runs)): why for folder, why in failed.items()}
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    latex = "\n".join(line for one in tables(table) for line in one.latex())
    texts = {"json": json.dumps(table, indent=1) + "\n", "md": markdown(table), "tex": latex}
    for suffix, text in texts.items():
        with replacing(out / f"protocols.{suffix}") as path:
            path.write_text(text, encoding="utf-8")
    _write_csv(out / "protocols.csv", list(_score_records(table["rows"])))
    _write_csv(out / "protocols-pairs.csv", [_flat(pair) for pair in table["pairs"]])
    return table


def markdown(table: Mapping[str, Any]) -> str:
    """Return the report as Markdown, from what its JSON file holds."""
    seeds = ", ".join(map(str, table["seeds"]))
    about = TEXTS["about"].strip().replace("{count}", str(len(table["seeds"])))
    made = f"Made by `{table['command']}`; do not edit."
    lines = [f"# {TEXTS['title']}", "", made, "", about.replace("{seeds}", seeds)]
    for one in tables(table):
        lines += ["", f"## {one.title}", ""]
        lines += ([one.about.strip(), ""] if one.about else []) + one.markdown()
    texts = read_toml(HERE / "published.toml")["sources"]
    used = dict.fromkeys(figure["source"] for figure in table["published"])
    lines += ["", "## Sources", "", *(f"- {name}: {texts[name]}." for name in used)] if used else []
    if table["failed"]:
        lines += ["", "## Left out", "", "A row with a run that failed or is not finished."]
        lines += ["", *(f"- {folder}: {why}" for folder, why in table["failed"].items())]
    return "\n".join(lines) + "\n"


def tables(table: Mapping[str, Any]) -> Iterator[Table]:
    """Yield scores, published figures, comparisons and scores by label of each graph."""
    for graph in dict.fromkeys(row["graph"] for row in table["rows"]):
        rows, figures, pairs = (
            [one for one in table[name] if one["graph"] == graph]
            for name in ("rows", "published", "pairs")
        )
        rules = [
            rule
            for rule in RULES
            if rule == DEFAULT or any(r["rules"][rule] != r["rules"][DEFAULT] for r in rows)
        ]
        heads = ["model, weights", *(RULES[rule] for rule in rules)]
        shown = [[row_name(row), *(_both(row["rules"][rule]) for rule in rules)] for row in rows]
        yield Table(graph, "", heads, shown)
        if figures:
            heads = ["model", "micro", "macro", "rule", "source"]
            shown = [
                [f["model"], *(number(f, a) for a in AVERAGES), RULES[f["rule"]], f["source"]]
                for f in figures
            ]
            yield Table(f"{graph}: published figures", "", heads, shown)
        heads = ["pair", "F1", "difference", "95 %, nodes", "seeds", "t", "Wilcoxon", "sign", "d_z"]
        shown = [_pair(pair) for pair in pairs if pair["rule"] == DEFAULT]
        yield Table(f"{graph}: comparisons", TEXTS["pairs"], heads, shown)
        by_label = [row["rules"][DEFAULT]["labels"] for row in rows]
        shown = [
            [row_name(row), *(f"{x['mean']:.2f} ± {x['std']:.2f}" for x in labels.values())]
            for row, labels in zip(rows, by_label, strict=True)
        ]
        title = f"{graph}: F1 by label, HGB's rule"
        yield Table(title, "", ["model, weights", *by_label[0]], shown)


def _both(cell: Mapping[str, Any]) -> str:
    return " / ".join(f"{cell[a]['mean']:.2f} ± {cell[a]['std']:.2f}" for a in AVERAGES)


def _pair(pair: Mapping[str, Any]) -> list[str]:
    low, high = pair["interval"]
    p = ["–" if pair[test] is None else f"{pair[test]:.3f}" for test in ("t", "wilcoxon", "sign")]
    d_z = "–" if pair["d_z"] is None else f"{pair['d_z']:+.1f}"
    name, seeds = f"{pair['first']} − {pair['second']}", f"{pair['better']} / {pair['worse']}"
    bounds = f"[{low:+.2f}, {high:+.2f}]"
    return [name, pair["average"], f"{pair['difference']:+.2f}", bounds, seeds, *p, d_z]


def _score_records(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record per row, rule and score: micro, macro, and F1 of each label."""
    for row in rows:
        about = {key: row[key] for key in ("graph", "model", "weights")}
        for rule, cell in row["rules"].items():
            for average in AVERAGES:
                yield _flat(about | {"rule": rule, "score": average} | cell[average])
            for name, one in cell["labels"].items():
                yield _flat(about | {"rule": rule, "score": f"F1 of {name}"} | one)


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the bounds of its interval and its values by seed as plain cells."""
    low, high = record.get("interval", (None, None))
    flat = {key: value for key, value in record.items() if key != "interval"}
    if "values" in flat:
        flat["values"] = " ".join(map(str, flat["values"]))
    return flat | {"low": low, "high": high}


def _write_csv(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    heads = list(records[0]) if records else []
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
