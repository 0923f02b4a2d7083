"""The command ``hanme explain``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from hanme.cli.options import Positive, Seed, find_run, suggest_names
from hanme.cli.show import show_progress
from hanme.errors import HanmeError


def explain(
    run: Path | None = None,
    node: str | None = None,
    *,
    out: Path | None = None,
    reasons: Positive = 10,
    instances: Positive = 10,
    label: str | None = None,
    details: bool = False,
    fidelity: bool = False,
    nodes: Positive = 200,
    seed: Seed = 0,
    graph: Path | None = None,
    data: Path | None = None,
    allow: list[str] | None = None,
    json_: bool = False,
) -> None:
    """Explain a prediction by links and columns, or measure how faithful that is.

    hanme explain Avatar --out avatar.svg

    hanme explain runs/direct Avatar

    hanme explain runs/direct --fidelity

    Args:
        node: Id or name of a target node; RUN may be left out.
        out: Also draw it as an .svg or .html file.
        reasons: Number of reasons to show.
        instances: With --details: number of instances to show.
        label: Explain this label (default: the predicted one).
        details: Also show how the model computes it, by metapath, block and instance.
        fidelity: Remove each link and column of test nodes, one at a time, and count how often the
            first reason changes the probability most.
        nodes: With --fidelity: number of nodes.
        seed: With --fidelity: seed of the nodes.
        graph: Another graph.toml of the same schema, such as one with new rows.
    """
    if run is not None and node is None and not (fidelity or (run / "config.json").exists()):
        run, node = None, str(run)
    if (node is None) == (not fidelity):
        raise HanmeError("name either a node to explain or --fidelity")
    if out is not None and node is None:
        raise HanmeError("--out draws the explanation of a node")
    from hanme.explain.picture import check_suffix, save
    from hanme.runs import OpenedRun

    if out is not None:
        check_suffix(out)
    opened = OpenedRun.open(find_run(run), source=data, graph=graph)
    if node is None:
        with show_progress("nodes", nodes) as (bar, task):
            measured = opened.fidelity(nodes=nodes, seed=seed, on_node=lambda: bar.advance(task))
        print(json.dumps(measured.to_dict()) if json_ else measured)
        return
    with suggest_names(opened.graph):
        explanation = opened.explain(node, instances=instances, label=label)
    if out is not None:
        save(explanation, out)
    if json_:
        print(json.dumps(explanation.to_dict()))
        return
    print(explanation.text(reasons, details=details))
    print("" if details else f"(details: hanme explain {shlex.quote(node)} --details)")
    if out is not None:
        print(f"The picture is in {out}.")
