"""The command ``hanme inspect``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hanme.cli.options import Allow, DataSet, FeaturesOption, Json, Options, Source, pairs
from hanme.cli.show import print_table, printable

if TYPE_CHECKING:
    from hanme.graph.features import Features


def inspect(
    data_set: DataSet,
    hops: Annotated[
        int, typer.Option(min=1, max=12, help="Show metapaths of up to this many hops.")
    ] = 4,
    limit: Annotated[
        int,
        typer.Option(
            min=1, max=10**6, help="Show at most this many metapaths, default and short ones first."
        ),
    ] = 100,
    hidden: Annotated[int, typer.Option(min=1, max=2**24, help="Hidden size, for memory.")] = 128,
    heads: Annotated[int, typer.Option(min=1, max=2**16, help="Heads to estimate memory for.")] = 8,
    data: Source = None,
    allow: Allow = None,
    features: FeaturesOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Draws the split.")] = 483,
    option: Options = None,
    json_: Json = False,
) -> None:
    """Show a graph and the metapaths from its target back to it, with counts of instances."""
    from hanme.common.numbers import lasting, short
    from hanme.data import load
    from hanme.ops import BACKENDS, choose_backend
    from hanme.ops.cost import readable
    from hanme.runs.describe import describe

    how, knobs = cast("Features | None", features), pairs(option)
    graph = load(data_set, source=data, features=how, seed=seed, options=knobs)
    found = describe(graph, hops, hidden, heads, limit)
    if json_:
        print(json.dumps(found))
        return
    target, labelled = found["target"], max(1, found["target"]["labelled"])
    nodes = [
        [row["type"], f"{row['nodes']:,}", f"{row['features']:,}", f"{row['set']:.1f}"]
        for row in found["nodes"]
    ]
    lossy = any(row["dropped"] for row in found["relations"])
    relations = [
        [row["relation"], f"{row['links']:,}", *[f"{row['dropped']:,}"] * lossy]
        for row in found["relations"]
    ]
    labels = [
        [printable(label), f"{count:,}", f"{count / labelled:.1%}"]
        for label, count in zip(target["labels"], target["counts"], strict=True)
    ]
    metapaths = [
        [
            row["metapath"],
            row["use"],
            *(short(row[key]) for key in ("instances", "roots", "most")),
            *(readable(row["bytes"][name]) for name in BACKENDS),
        ]
        for row in found["metapaths"]
        if row["instances"]
    ]
    print_table(["node type", "nodes", "features", "set per node"], nodes, title="Nodes")
    dropped = ["dropped, unknown ids"] * lossy
    print_table(["relation", "links", *dropped], relations, title="Relations")
    print_table(["label", "nodes", "share"], labels, title="Labels")
    print_table(
        ["metapath", "use", "instances", "roots with some", "most at one root", *BACKENDS],
        metapaths,
        title=f"Metapaths from {graph.target} to {graph.target}",
        left=2,
        caption=f"{', '.join(BACKENDS)}: the memory that a backend needs in training, about, with "
        f"{heads} heads and hidden size {hidden}; this machine uses "
        f"{choose_backend('auto', graph.y.device)}. Metapaths without an instance are not shown.",
    )
    if found["more_metapaths"]:
        print(f"{short(found['more_metapaths'])} more metapaths are not counted: --limit, --hops.")
    if seconds := found["seconds_per_epoch"]:
        print(
            f"An epoch over the default metapaths takes about {lasting(seconds)} on this machine."
        )
    for metapath, why in found["left_out"].items():
        print(printable(f"{metapath}: left out of the default metapaths, {why}; -m uses it."))
    for note in found["notes"]:
        print(printable(f"{note}."))
    print(
        f"Target {target['type']}: {'several labels' if target['multilabel'] else 'one label'} per "
        f"node; {target['train']:,} / {target['val']:,} / {target['test']:,} training / "
        f"validation / test nodes, {target['nodes'] - target['labelled']:,} without a label"
    )
