"""hanme explain"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from hanme.cli.options import Grown, Json, Source
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.explain import By, Explanation, Fidelity


def explain(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    node: Annotated[
        str | None, typer.Argument(help="A node of the target type: its id, name or number.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many instances to show.")] = 5,
    label: Annotated[
        str | None,
        typer.Option(help="Rank instances by this label's logit (default: the most likely label)."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Rank by part (of the logit, adds up to it), by move (the logit with the "
            "instance minus without it, up or down) or by attention."
        ),
    ] = "part",
    fidelity: Annotated[
        bool,
        typer.Option(
            "--fidelity",
            help="Instead of one node: remove top and random instances of test nodes and "
            "measure how far the logit moves.",
        ),
    ] = False,
    nodes: Annotated[
        int,
        typer.Option(min=1, help="--fidelity: on so many nodes that have more than 5 instances."),
    ] = 200,
    seed: Annotated[int, typer.Option(help="--fidelity: draws nodes and random instances.")] = 1,
    graph: Grown = None,
    data: Source = None,
    json_: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Also draw a picture: a file.svg or file.html, replaced if it is there."),
    ] = None,
) -> None:
    """Shows which metapath instances made a prediction, or measures such explanations.

    hanme explain runs/direct Avatar --out avatar.svg

    hanme explain runs/direct --fidelity
    """
    if (node is None) == (not fidelity):
        raise HanmeError("explain: name a node to explain, or ask for --fidelity, one of the two")
    from hanme.explain import Explainer
    from hanme.explain import fidelity as measure
    from hanme.explain.picture import check_suffix, save
    from hanme.training import Run, open_run
    from hanme.training.pipeline import refuse_other_tables

    if out is not None:
        check_suffix(out)
    opened = Run.open(run)
    loaded, model = open_run(opened, data, graph)
    ranking = cast("By", by)
    found: Explanation | Fidelity
    if node is None:
        refuse_other_tables(loaded, opened.fitted(), graph or run)
        console = Console(stderr=True)
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("nodes", total=nodes)
            found = measure(
                model, loaded, nodes=nodes, by=ranking, seed=seed, on_node=lambda: bar.advance(task)
            )
    else:
        explainer = Explainer(model, loaded, fallback=opened.config.training.fallback)
        found = explainer.explain(node, top=top, label=label, by=ranking)
    if out is not None:
        save(found, out)
    if json_:
        print(json.dumps(found.to_dict()))
    elif node is None:
        _print_fidelity(cast("Fidelity", found))
    else:
        _print_explanation(cast("Explanation", found))
    if out is not None and not json_:
        print(f"The picture is in {out}.")


def _print_explanation(found: Explanation) -> None:
    from hanme.explain.explanation import hops, shown

    def plain(text: str) -> Text:
        return Text(shown(text))  # a name is text: no markup, nothing that steers a terminal

    console = Console(width=None if Console().is_terminal else 200, highlight=False)
    labels = Table("label", "probability", "logit", title=plain(found.node))
    for name, p in sorted(found.probabilities.items(), key=lambda item: -item[1]):
        bold = "bold" if name in found.predicted else ""
        predicted = " (predicted)" if name in found.predicted else ""
        row = plain(name + predicted), f"{p:.1%}", f"{found.logits[name]:+.3f}"
        labels.add_row(*row, style=bold)
    metapaths = Table("metapath", "weight", "instances")
    for text, beta in found.metapaths.items():
        metapaths.add_row(plain(text), f"{beta:.1%}", f"{found.counts[text]:,}")
    label, columns = shown(found.label), _columns(found, console.width)
    about = "the parts of all instances and the label's bias add up to its logit"
    instances = Table(
        "instance",
        "metapath",
        Column(Text(f"part of\n{label}")),
        *(Column(Text(f"move of\n{shown(name)}")) for name in columns),
        "attention",
        "hops",
        title=plain(f"Top {len(found.instances)} by {found.by} for {label}"),
        caption=f"part: {about}; move: the logit with the instance minus without it",
    )
    for instance in found.instances:
        instances.add_row(
            plain(str(instance)),
            plain(instance.metapath),
            f"{instance.parts[found.label]:+.4f}",
            *(f"{instance.moves[name]:+.4f}" for name in columns),
            f"{instance.attention:.2%}",
            hops(instance),
        )
    for table in (labels, metapaths, instances):
        table.title_justify = "left"
        for column in table.columns[1 if table is not instances else 2 :]:
            column.justify = "right"
            column.no_wrap = True
        console.print(table)


def _columns(found: Explanation, width: int) -> list[str]:
    """The labels whose moves are shown: the ranking's first, then all that a line has room for."""
    named = dict.fromkeys([found.label, *found.predicted, *found.logits])
    return list(named)[: max(1, (width - 100) // 15)]


def _print_fidelity(found: Fidelity) -> None:
    from hanme.explain.explanation import ENOUGH

    table = Table(
        "removed",
        "nodes with more",
        f"top by {found.by}",
        "random",
        "times as far",
        "every node",
        "random, same metapaths",
        title="How far the most likely label's logit moves, mean",
        caption=f"{found.nodes} test nodes with more than {ENOUGH} instances were drawn, and "
        f"{found.fewer} without came up on the way; {found.draws} random draws each. Nodes with "
        "no more than are removed lose all instances either way: they count in every node alone",
        title_justify="left",
    )
    for step in found.steps:
        table.add_row(
            str(step.k),
            str(step.nodes),
            f"{step.top:.4f}",
            f"{step.random:.4f}",
            f"{step.ratio:.2f}",
            f"{step.ratio_of_every:.2f}",
            f"{step.alike:.4f}",
        )
    for column in table.columns:
        column.justify = "right"
    Console(width=None if Console().is_terminal else 120).print(table)
