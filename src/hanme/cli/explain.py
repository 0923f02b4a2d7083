"""The command ``hanme explain``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

from hanme.cli.options import Allow, GraphOption, Json, RunArgument, Source, find_run
from hanme.cli.show import print_table, show_progress
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.explain import By, Explanation, Fidelity

WIDTH = 200
"""Width of the tables where output is piped: an instance with names takes about 100."""
MIN_PROBABILITY, MIN_LABELS = 0.01, 3
"""Labels below this probability are not listed, unless there are no more than this number."""
fidelity_option = partial(typer.Option, rich_help_panel="Can explanations be trusted?")


def explain(
    run: RunArgument = None,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE", help="Id, name or number of a target node. RUN may be left out."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also draw it as an .svg or .html file."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of instances to show.")] = 5,
    label: Annotated[
        str | None,
        typer.Option(help="Explain the logit of this label (default: the most likely one)."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="part|move|attention",
            help="Rank instances by their part of the logit (the parts add up to it), by how far "
            "the logit moves if the instance is removed, or by attention.",
        ),
    ] = "part",
    fidelity: Annotated[
        bool,
        fidelity_option(
            "--fidelity",
            help="Remove top and random instances of test nodes and measure how far the logit "
            "moves, instead of explaining a node.",
        ),
    ] = False,
    nodes: Annotated[
        int, fidelity_option(min=1, help="Number of nodes, each with more than 5 instances.")
    ] = 200,
    seed: Annotated[
        int, fidelity_option(min=0, max=2**63 - 1, help="Seed of nodes and random instances.")
    ] = 0,
    graph: GraphOption = None,
    data: Source = None,
    allow: Allow = None,
    json_: Json = False,
) -> None:
    """Explain a prediction by metapath instances and features, or measure how faithful that is.

    hanme explain Avatar --out avatar.svg

    hanme explain runs/direct Avatar

    hanme explain runs/direct --fidelity
    """
    if run is not None and node is None and not (fidelity or (run / "config.json").exists()):
        run, node = None, str(run)
    if (node is None) == (not fidelity):
        raise HanmeError("name either a node to explain or --fidelity")
    from hanme.explain.picture import check_suffix, save
    from hanme.runs import OpenedRun

    if out is not None:
        check_suffix(out)
    opened = OpenedRun.open(find_run(run), source=data, graph=graph)
    ranking = cast("By", by)
    result: Explanation | Fidelity
    if node is None:
        with show_progress("nodes", nodes) as (bar, task):
            result = opened.fidelity(
                nodes=nodes, by=ranking, seed=seed, on_node=lambda: bar.advance(task)
            )
    else:
        result = opened.explain(node, top=top, label=label, by=ranking)
    if out is not None:
        save(result, out)
    if json_:
        print(json.dumps(result.to_dict()))
    elif node is None:
        _print_fidelity(cast("Fidelity", result))
    else:
        _print_explanation(cast("Explanation", result))
    if out is not None and not json_:
        print(f"The picture is in {out}.")


def _print_explanation(explanation: Explanation) -> None:
    from hanme.explain.explanation import hops, shown

    labels = [
        [shown(name), explanation.role(name), f"{p:.1%}", f"{explanation.logits[name]:+.3f}"]
        for i, (name, p) in enumerate(
            sorted(explanation.probabilities.items(), key=lambda item: -item[1])
        )
        if i < MIN_LABELS or p >= MIN_PROBABILITY or name in explanation.chosen
    ]
    rest = len(explanation.logits) - len(labels)
    metapaths = [
        [shown(text), f"{beta:.1%}", f"{explanation.counts[text]:,}"]
        for text, beta in explanation.metapaths.items()
    ]
    width = Console().width if Console().is_terminal else WIDTH
    columns = explanation.chosen[: max(1, (width - 100) // 15)]  # those that matter, as many as fit
    instances = [
        [
            shown(str(instance)),
            shown(instance.metapath),
            f"{instance.parts[explanation.label]:+.4f}",
            *(f"{instance.moves[name]:+.4f}" for name in columns),
            f"{instance.attention:.2%}",
            hops(instance),
        ]
        for instance in explanation.instances
    ]
    label, moves = shown(explanation.label), [f"move of\n{shown(name)}" for name in columns]
    print_table(
        ["label", "", "probability", "logit"],
        labels,
        title=explanation.title,
        caption=f"{rest} more labels, below {MIN_PROBABILITY:.0%} each" if rest else None,
        width=WIDTH,
        left=2,
    )
    if metapaths:
        print_table(["metapath", "weight", "instances"], metapaths, width=WIDTH)
    if explanation.others:
        print_table(
            ["linear part", f"part of\n{label}"],
            [
                *(
                    [shown(n), f"{p[explanation.label]:+.4f}"]
                    for n, p in explanation.others.items()
                ),
                *(
                    [f"  {reason}", f"{reason.parts[explanation.label]:+.4f}"]
                    for reason in explanation.reasons
                ),
            ],
            title="Linear part by feature block, with the largest contributions",
            width=WIDTH,
        )
    if not instances:
        return
    print_table(
        ["instance", "metapath", f"part of\n{label}", *moves, "attention", "hops"],
        instances,
        title=f"Top {len(instances)} by {explanation.by} for {label}",
        caption="part: parts of all instances and of the linear part add up to the label's logit; "
        "move: the logit with the instance minus the logit without it",
        width=WIDTH,
        left=2,
    )


def _print_fidelity(fidelity: Fidelity) -> None:
    from hanme.explain.explanation import ENOUGH

    top = f"top by {fidelity.by}"
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
        for step in fidelity.steps
    ]
    print_table(
        [*heads, "random, same metapaths"],
        rows,
        title="How far the most likely label's logit moves, mean",
        caption=f"{fidelity.nodes} test nodes with more than {ENOUGH} instances; {fidelity.fewer} "
        f"with fewer were drawn and left out. {fidelity.draws} random draws each. A node with no "
        "more instances than are removed counts only in 'every node'.",
        width=120,
        left=0,
    )
