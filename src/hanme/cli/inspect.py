"""hanme inspect"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from hanme.cli.options import DataSet, Features, Json, Options, Source, pairs
from hanme.cli.show import printable


def inspect(
    data_set: DataSet,
    hops: Annotated[int, typer.Option(min=1, help="Show metapaths of at most so many hops.")] = 4,
    hidden: Annotated[int, typer.Option(help="Hidden size to state costs for.")] = 128,
    heads: Annotated[int, typer.Option(min=1, help="Heads to state costs for.")] = 8,
    data: Source = None,
    features: Features = None,
    seed: Annotated[int, typer.Option(help="Draws the split.")] = 483,
    option: Options = None,
    json_: Json = False,
) -> None:
    """Shows a graph and the metapaths that return to its target, counted without listing one."""
    from hanme.datasets import load
    from hanme.ops import BACKENDS, choose_backend
    from hanme.ops.cost import readable
    from hanme.training.describe import describe

    graph = load(data_set, source=data, features=features, seed=seed, options=pairs(option))
    used = choose_backend("auto", graph[graph.target].x.device)
    found = describe(graph, hops, hidden, heads)
    if json_:
        print(json.dumps(found))
        return
    console = Console(width=None if Console().is_terminal else 160, markup=False, emoji=False)
    nodes = Table("node type", "nodes", "features", "set per node", title="Nodes")
    for row in found["nodes"]:
        nodes.add_row(row["type"], f"{row['nodes']:,}", f"{row['features']:,}", f"{row['set']:.1f}")
    lossy = any(row["dropped"] for row in found["relations"])
    dropped = ("dropped, unknown ids",) if lossy else ()
    relations = Table("relation", "links", *dropped, title="Relations")
    for row in found["relations"]:
        lost = (f"{row['dropped']:,}",) if lossy else ()
        relations.add_row(row["relation"], f"{row['links']:,}", *lost)
    labels = Table("label", "nodes", "share", title="Labels")
    target = found["target"]
    labelled = max(1, target["labelled"])
    for label, count in zip(target["labels"], target["counts"], strict=True):
        labels.add_row(printable(label), f"{count:,}", f"{count / labelled:.1%}")
    metapaths = Table(
        Column("metapath", no_wrap=True),
        "instances",
        "roots with some",
        "most at one root",
        *BACKENDS,
        title=f"Metapaths from {graph.target} to {graph.target}",
        caption=f"{', '.join(BACKENDS)}: memory a backend needs in training, about, with "
        f"{heads} heads and hidden size {hidden}; {used} is used on this machine. "
        "Metapaths without an instance are not shown.",
    )
    for row in found["metapaths"]:
        if not row["instances"]:
            continue
        metapaths.add_row(
            row["metapath"],
            f"{row['instances']:,}",
            f"{row['roots']:,}",
            f"{row['most']:,}",
            *(readable(row["bytes"][name]) for name in BACKENDS),
        )
    for table in (nodes, relations, labels, metapaths):
        table.title_justify = "left"
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)
    console.print(
        f"Target {target['type']}: {'several labels' if target['multilabel'] else 'one label'} per "
        f"node; {target['train']:,} / {target['val']:,} / {target['test']:,} training / "
        f"validation / test nodes, {target['nodes'] - target['labelled']:,} without a label"
    )
