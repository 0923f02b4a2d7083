"""The command ``hanme explain``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

from hanme.cli.options import Allow, Grown, Json, RunFolder, Source, the_run
from hanme.cli.show import print_table, show_progress
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.explain import By, Explanation, Fidelity

WIDTH = 200  # where output is piped
SMALL, FEW = 0.01, 3  # labels below this probability are not listed, unless they are so few
of_fidelity = partial(typer.Option, rich_help_panel="Can explanations be trusted?")


def explain(
    run: RunFolder = None,
    node: Annotated[
        str | None,
        typer.Argument(
            help="A node of the target type: its id, name or number. Without RUN, it can stand "
            "alone."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write a picture, .svg or .html; an existing file is replaced."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many instances to show.")] = 5,
    label: Annotated[
        str | None,
        typer.Option(help="Rank instances by this label's logit (default: the most likely label)."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Rank by part (of the logit: the parts add up to it), by move (how far the logit "
            "moves, up or down, if the instance is removed) or by attention."
        ),
    ] = "part",
    fidelity: Annotated[
        bool,
        of_fidelity(
            "--fidelity",
            help="Instead of explaining a node, remove top and random instances of test nodes and "
            "measure how far the logit moves.",
        ),
    ] = False,
    nodes: Annotated[
        int, of_fidelity(min=1, help="How many nodes, each with more than 5 instances.")
    ] = 200,
    seed: Annotated[
        int, of_fidelity(min=0, max=2**63 - 1, help="Draws nodes and random instances.")
    ] = 1,
    graph: Grown = None,
    data: Source = None,
    allow: Allow = None,
    json_: Json = False,
) -> None:
    """Show which metapath instances led to a prediction, or measure such explanations.

    hanme explain Avatar --out avatar.svg

    hanme explain runs/direct Avatar

    hanme explain runs/direct --fidelity
    """
    if run is not None and node is None and not (fidelity or (run / "config.json").exists()):
        run, node = None, str(run)
    if (node is None) == (not fidelity):
        raise HanmeError("explain: name a node to explain, or ask for --fidelity, one of the two")
    from hanme.explain.picture import check_suffix, save
    from hanme.runs import OpenedRun

    if out is not None:
        check_suffix(out)
    opened = OpenedRun.open(the_run(run), source=data, graph=graph)
    ranking = cast("By", by)
    found: Explanation | Fidelity
    if node is None:
        with show_progress("nodes", nodes) as (bar, task):
            found = opened.fidelity(
                nodes=nodes, by=ranking, seed=seed, on_node=lambda: bar.advance(task)
            )
    else:
        found = opened.explain(node, top=top, label=label, by=ranking)
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

    labels = [
        [shown(name), found.role(name), f"{p:.1%}", f"{found.logits[name]:+.3f}"]
        for i, (name, p) in enumerate(
            sorted(found.probabilities.items(), key=lambda item: -item[1])
        )
        if i < FEW or p >= SMALL or name in found.chosen
    ]
    rest = len(found.logits) - len(labels)
    metapaths = [
        [shown(text), f"{beta:.1%}", f"{found.counts[text]:,}"]
        for text, beta in found.metapaths.items()
    ]
    width = Console().width if Console().is_terminal else WIDTH
    columns = found.chosen[: max(1, (width - 100) // 15)]  # those that matter, as many as fit
    instances = [
        [
            shown(str(instance)),
            shown(instance.metapath),
            f"{instance.parts[found.label]:+.4f}",
            *(f"{instance.moves[name]:+.4f}" for name in columns),
            f"{instance.attention:.2%}",
            hops(instance),
        ]
        for instance in found.instances
    ]
    label, moves = shown(found.label), [f"move of\n{shown(name)}" for name in columns]
    print_table(
        ["label", "", "probability", "logit"],
        labels,
        title=found.title,
        caption=f"{rest} more labels, below {SMALL:.0%} each" if rest else None,
        width=WIDTH,
        left=2,
    )
    if metapaths:
        print_table(["metapath", "weight", "instances"], metapaths, width=WIDTH)
    if found.others:
        print_table(
            ["what else counts", f"part of\n{label}"],
            [
                *([shown(n), f"{p[found.label]:+.4f}"] for n, p in found.others.items()),
                *([f"  {reason}", f"{reason.parts[found.label]:+.4f}"] for reason in found.reasons),
            ],
            title="Linear model, trees and smoothing: by block, and the columns that count most",
            width=WIDTH,
        )
    if not instances:
        return
    print_table(
        ["instance", "metapath", f"part of\n{label}", *moves, "attention", "hops"],
        instances,
        title=f"Top {len(instances)} by {found.by} for {label}",
        caption="part: the parts of all instances and of all else add up to the label's logit; "
        "move: the logit with the instance minus without it",
        width=WIDTH,
        left=2,
    )


def _print_fidelity(found: Fidelity) -> None:
    from hanme.explain.explanation import ENOUGH

    top = f"top by {found.by}"
    heads = ["removed", "nodes with more", top, "random", "times as far", "every node"]
    rows = [
        [
            str(step.k),
            str(step.nodes),
            f"{step.top:.4f}",
            f"{step.random:.4f}",
            f"{step.ratio:.2f}",
            f"{step.ratio_of_every:.2f}",
            f"{step.alike:.4f}",
        ]
        for step in found.steps
    ]
    print_table(
        [*heads, "random, same metapaths"],
        rows,
        title="How far the most likely label's logit moves, mean",
        caption=f"{found.nodes} test nodes with more than {ENOUGH} instances; {found.fewer} others "
        f"came up while drawing. {found.draws} random draws each. A node with no more instances "
        "than are removed loses all of them either way: it counts in 'every node' only.",
        width=120,
        left=0,
    )
