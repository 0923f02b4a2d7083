"""The command ``hanme report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.options import RunFolder, Source, the_run


def report(
    run: RunFolder = None,
    out: Annotated[Path, typer.Option(help="The file, .html; an existing one is replaced.")] = Path(
        "report.html"
    ),
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node", "-n", help="Id or name of a node to explain. Repeat it for several."
        ),
    ] = None,
    data: Source = None,
) -> None:
    """Write one HTML file to send to a colleague: how good a run is, and why of chosen nodes.

    hanme report runs/films --out report.html --node f011 --node "The Amber Lantern"
    """
    from hanme.serve.report import check_report, write_report
    from hanme.serve.served import load_runs

    check_report(out)
    (served,) = load_runs([the_run(run)], data).values()
    write_report(served, out, node or [])
    print(f"The report is in {out}.")
