"""The command ``hanme audit``."""

from __future__ import annotations

import json
from typing import Annotated, Any

from hanme.cli.options import Range, changed_fields, chosen
from hanme.cli.show import print_table, show_stages


def audit(
    graph: str,
    *,
    shuffles: Annotated[int, Range(2, 1000)] = 3,
    json_: bool = False,
    changes: list[str] | None = None,
    allow: list[str] | None = None,
    **fields: Any,
) -> None:
    """Try to show that the scores on a graph are too good; exit with status 1 if they are.

    Fits linear model and trees, no network: with shuffled labels, from which nothing can be learnt;
    without columns and relations that give the label away; and, if rows have a date, to earlier
    rows only. Counts test rows that nearly repeat training rows.

    hanme audit films

    Args:
        shuffles: Number of times to shuffle the labels.
    """
    from hanme.auditing import audit
    from hanme.runs import load_graph, resolve
    from hanme.runs.config import override

    settings = {"data.name": graph} | changed_fields(changes) | chosen(fields)
    with show_stages():
        config, loaded = resolve(override({"model": {"name": "linear"}}, settings), "options")
        found = audit(
            loaded or load_graph(config),
            shuffles=shuffles,
            seed=config.training.seed,
            training=config.training,
        )
    if json_:
        print(json.dumps(found.to_dict()))
    else:
        rows = [
            {"check": check.name, "found": check.found, "finding": check.finding}
            for check in found.checks
        ]
        cost = f"{found.fits} fits of linear model and trees, {found.seconds:.0f} s"
        print_table(rows, title=f"Audit: {cost}", width=120)
        print(found.verdict)
    if not found.passed:
        raise SystemExit(1)
