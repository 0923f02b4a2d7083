"""The command ``hanme explain``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hanme.cli.options import Allow, GraphOption, Json, RunArgument, Source, find_run
from hanme.cli.show import show_progress
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.explain import By, Explanation, Fidelity

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
    print(json.dumps(result.to_dict()) if json_ else result)
    if out is not None and not json_:
        print(f"The picture is in {out}.")
