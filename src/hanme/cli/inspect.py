"""The command ``hanme inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from hanme.cli.options import Range, changed_fields, chosen
from hanme.cli.show import print_table
from hanme.common.text import printable
from hanme.errors import HanmeError


def inspect(
    graph: str,
    *,
    hops: Annotated[int, Range(1, 12)] = 4,
    limit: Annotated[int, Range(1, 10**6)] = 100,
    store: Path | None = None,
    check: bool = False,
    search: bool = False,
    budget: Annotated[int, Range(1, 10**15)] | None = None,
    json_: bool = False,
    changes: list[str] | None = None,
    allow: list[str] | None = None,
    **fields: Any,
) -> None:
    """Show a graph as training sees it, and its metapaths with their cost; or store it on disk.

    hanme inspect films

    hanme inspect films --search

    hanme inspect films --store films.store

    Args:
        hops: Maximum length of the metapaths to show.
        limit: Maximum number of metapaths; default and short ones first.
        store: Write the graph to this new or empty folder instead, to be mapped from disk rather
            than loaded: for graphs larger than memory.
        check: Compare the files of a stored graph with their checksums instead.
        search: Rank the metapaths by how well known labels at their ends predict those of training
            nodes, and select some within a budget of instances.
        budget: The budget of --search (default: 4 million, as for default metapaths).
    """
    from hanme.data import check_store, is_store, store_graph
    from hanme.graph.defaults import BUDGET
    from hanme.runs import load_graph, resolve
    from hanme.runs.config import describe_field, override
    from hanme.runs.describe import describe, searched

    if check:
        if not is_store(graph):
            raise HanmeError(f"{graph}: not a stored graph")
        print(f"{graph}: all {check_store(Path(graph)):,} bytes match their checksums.")
        return
    settings = {"data.name": graph} | changed_fields(changes) | chosen(fields)
    config, _ = resolve(override({"model": {"name": "linear"}}, settings), "options")
    if store is not None:
        data = config.data
        store_graph(
            data.name,
            store,
            progress=lambda text: print(printable(text), flush=True),
            source=data.source,
            features=data.features,
            seed=config.training.seed if data.seed is None else data.seed,
            options=data.options,
        )
        print(f"The graph is in {store}. Use the folder as a graph: hanme train {store}")
        return
    hidden, heads = (
        describe_field(f"model.options.{name}").default for name in ("hidden_channels", "heads")
    )
    loaded = load_graph(config)
    summary = describe(loaded, hops, hidden, heads, limit)
    if search:
        summary["search"] = searched(loaded, hops, limit, budget or BUDGET)
    if json_:
        print(json.dumps(summary))
    else:
        _show(summary)
        if search:
            _show_search(graph, summary["search"], budget or BUDGET)


def _show(summary: dict[str, Any]) -> None:
    from hanme.common.text import short
    from hanme.ops import BACKENDS
    from hanme.ops.cost import readable

    target = summary["target"]
    labels = [
        {"label": label, "nodes": count, "share": f"{count / max(1, target['labelled']):.1%}"}
        for label, count in zip(target["labels"], target["counts"], strict=True)
    ]
    counts = ("instances", "nodes_with_instances", "largest_per_node")
    metapaths = [
        {"metapath": row["metapath"], "use": row["use"]}
        | {name: short(row[name]) for name in counts}
        | {name: readable(row["bytes"][name]) for name in BACKENDS}
        for row in summary["metapaths"]
        if row["instances"]
    ]
    about = f"{', '.join(BACKENDS)}: memory in training. Metapaths without instances are not shown."
    print_table(summary["nodes"], title="Nodes")
    print_table(summary["relations"], title="Relations")
    print_table(labels, title="Labels")
    print_table(metapaths, title=f"Metapaths from {target['type']}", caption=about)
    notes = [f"{note}." for note in summary["notes"]]
    if more := summary["more_metapaths"]:
        notes.append(f"{short(more)} more metapaths are not counted: see --limit and --hops.")
    for metapath, why in summary["left_out"].items():
        notes.append(f"{metapath}: not a default metapath, {why}; use it with -m.")
    notes.append(
        f"Target {target['type']}: {'several labels' if target['multilabel'] else 'one label'} per "
        f"node; {target['train']:,} / {target['val']:,} / {target['test']:,} training / "
        f"validation / test nodes, {target['nodes'] - target['labelled']:,} without a label"
    )
    print(*map(printable, notes), sep="\n")


def _show_search(graph: str, rows: list[dict[str, Any]], budget: int) -> None:
    from hanme.common.text import short

    shown = [
        {"metapath": row["metapath"], "instances": short(row["instances"])}
        | {name: f"{row[name]:.1%}" for name in ("alone", "gain")}
        | {"selected": row["rank"] or ""}
        for row in rows
    ]
    about = "alone: share of the base rate's loss that known labels at its ends explain."
    print_table(shown, title="Search", caption=f"{about} gain: beyond those selected before it.")
    chosen = " ".join(f"-m {row['metapath']}" for row in rows if row["rank"])
    found = "Known labels along metapaths predict no better than the base rate."
    if rows and all(row["instances"] > budget for row in rows):
        found = f"Every metapath has more instances than the budget, {budget:,}; see --budget."
    print(printable(f"Next: hanme train {graph} {chosen}" if chosen else found))
