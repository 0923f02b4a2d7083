"""hanme inspect"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hanme.cli.options import DataSet, Features, Json, Options, Source, pairs


def inspect(
    data_set: DataSet,
    hops: Annotated[int, typer.Option(min=1, help="Show metapaths of at most so many hops.")] = 4,
    hidden: Annotated[int, typer.Option(help="Hidden size to state costs for.")] = 128,
    heads: Annotated[int, typer.Option(min=1, help="Heads to state costs for.")] = 8,
    data: Source = None,
    features: Features = "mean",
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
    console = Console(width=None if Console().is_terminal else 120)
    nodes = Table("node type", "nodes", "features", "set per node", title="Nodes")
    for row in found["nodes"]:
        nodes.add_row(row["type"], f"{row['nodes']:,}", f"{row['features']:,}", f"{row['set']:.1f}")
    relations = Table("relation", "links", title="Relations")
    for row in found["relations"]:
        relations.add_row(row["relation"], f"{row['links']:,}")
    metapaths = Table(
        "metapath",
        "instances",
        "roots with some",
        "most at one root",
        *BACKENDS,
        title=f"Metapaths from {graph.target} to {graph.target}",
        caption=f"{', '.join(BACKENDS)}: memory a backend needs in training, about, with "
        f"{heads} heads and hidden size {hidden}; {used} is used on this machine",
    )
    for row in found["metapaths"]:
        metapaths.add_row(
            row["metapath"],
            f"{row['instances']:,}",
            f"{row['roots']:,}",
            f"{row['most']:,}",
            *(readable(row["bytes"][name]) for name in BACKENDS),
        )
    for table in (nodes, relations, metapaths):
        table.title_justify = "left"
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)
    target = found["target"]
    console.print(
        f"Target {target['type']}: {', '.join(target['labels'])}; "
        f"{'several labels' if target['multilabel'] else 'one label'} per node; "
        f"{target['train']:,} / {target['val']:,} / {target['test']:,} "
        "training / validation / test nodes"
    )
