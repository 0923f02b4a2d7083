"""The command ``hanme inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hanme.cli.options import Range, changed_fields, chosen, takes_fields
from hanme.cli.show import print_table, printable
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.graph import Graph
    from hanme.runs import RunConfig


@takes_fields(
    Options="training.seed model.options.hidden_channels model.options.heads",
    Data="data.features data.source",
)
def inspect(
    graph: str,
    *,
    hops: Annotated[int, Range(1, 12)] = 4,
    limit: Annotated[int, Range(1, 10**6)] = 100,
    store: Path | None = None,
    half: bool = False,
    check: bool = False,
    json_: bool = False,
    changes: list[str] | None = None,
    allow: list[str] | None = None,
    **fields: Any,
) -> None:
    """Show a graph as training sees it, and its metapaths with their cost; or store it on disk.

    hanme inspect films

    hanme inspect films --store films.store

    Args:
        hops: Maximum length of the metapaths to show.
        limit: Maximum number of metapaths; default and short ones first.
        store: Write the graph to this new or empty folder instead, to be mapped from disk rather
            than loaded: for graphs larger than memory.
        half: With --store: features in half precision.
        check: Compare the files of a stored graph with their checksums instead.
    """
    from hanme.experiments.configuration import override, resolve
    from hanme.runs import load_graph
    from hanme.runs.config import describe_field
    from hanme.runs.describe import describe

    if check:
        _check(graph)
        return
    sizes = {
        name: describe_field(f"model.options.{name}").default
        for name in ("hidden_channels", "heads")
    }
    settings = {"data.name": graph} | changed_fields(changes) | chosen(fields)
    sizes |= {name: settings.pop(f"model.options.{name}", size) for name, size in sizes.items()}
    config, _ = resolve(override({"model": {"name": "linear"}}, settings), "options")
    if store is not None:
        _store(config, store, half)
        return
    loaded = load_graph(config)
    hidden, heads = sizes["hidden_channels"], sizes["heads"]
    if not 1 <= heads <= hidden <= MAX_HIDDEN:
        raise HanmeError(
            f"--hidden {hidden} --heads {heads}: expected 1 <= heads <= hidden <= {MAX_HIDDEN}"
        )
    summary = describe(loaded, hops, hidden, heads, limit)
    if json_:
        print(json.dumps(summary))
    else:
        _show(summary, loaded, hidden, heads)


MAX_HIDDEN = 2**24
"""Largest hidden size to estimate memory for: beyond it, sizes in bytes mean nothing."""


def _check(name: str) -> None:
    from hanme.data import check_store, is_store

    if not is_store(name):
        raise HanmeError(f"{name}: not a stored graph")
    print(f"{name}: all {check_store(Path(name)):,} bytes match their checksums.")


def _store(config: RunConfig, folder: Path, half: bool) -> None:
    from hanme.data import store_graph

    data = config.data
    store_graph(
        data.name,
        folder,
        half=half,
        progress=lambda text: print(printable(text), flush=True),
        source=data.source,
        features=data.features,
        seed=config.training.seed if data.seed is None else data.seed,
        options=data.options,
    )
    print(f"The graph is in {folder}. Use the folder as a graph: hanme train {folder}")


def _show(summary: dict[str, Any], graph: Graph, hidden: int, heads: int) -> None:
    from hanme.common.text import duration, short
    from hanme.ops import BACKENDS, choose_backend
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
    print_table(summary["nodes"], title="Nodes")
    print_table(summary["relations"], title="Relations")
    print_table(labels, title="Labels")
    print_table(
        metapaths,
        title=f"Metapaths from {graph.target} to {graph.target}",
        caption=f"{', '.join(BACKENDS)}: approximate memory of a backend in training, with {heads} "
        f"heads and hidden size {hidden}; this machine uses "
        f"{choose_backend('auto', graph.y.device)}. Metapaths without instances are not shown.",
    )
    if more := summary["more_metapaths"]:
        print(f"{short(more)} more metapaths are not counted: see --limit and --hops.")
    if seconds := summary["seconds_per_epoch"]:
        print(f"One epoch over the default metapaths: about {duration(seconds)} on this machine.")
    for metapath, why in summary["left_out"].items():
        print(printable(f"{metapath}: not a default metapath, {why}; use it with -m."))
    for note in summary["notes"]:
        print(printable(f"{note}."))
    print(
        f"Target {target['type']}: {'several labels' if target['multilabel'] else 'one label'} per "
        f"node; {target['train']:,} / {target['val']:,} / {target['test']:,} training / "
        f"validation / test nodes, {target['nodes'] - target['labelled']:,} without a label"
    )
