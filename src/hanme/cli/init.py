"""The command ``hanme init``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.show import printable


def init(
    folder: Annotated[Path, typer.Argument(help="A folder of tables, or one table.")],
    target: Annotated[
        str | None, typer.Option(help="The table whose rows to classify (default: a guess).")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Its column of labels (default: a guess).")
    ] = None,
) -> None:
    """Guess a graph from a folder of tables and write a graph.toml that explains the guesses."""
    from hanme.data import METAPATHS
    from hanme.data.tables.draft.infer import infer
    from hanme.data.tables.draft.toml_writer import output_path, write

    path = output_path(folder)
    inferred = infer(folder, target, label)
    write(inferred, path)
    config = inferred.config
    column = config.nodes[config.target].label
    wanted = f"its labels are in the column {column}" if column else "say which column is its label"
    other = "" if label or not column else " If they are in another, delete it and say --label."
    folder = path.parent
    taken = str(folder).lower() in map(str.lower, METAPATHS)  # a data set has this name
    name = shlex.quote(f"./{folder}" if taken else str(folder))
    print(printable(f"{path} is written. To classify: {config.target}; {wanted}.{other}"))
    for reason in (*inferred.skipped, *inferred.copies):
        print(printable(f"Skipped: {reason}"))
    print("All of it is a guess from names and values: read it, change what is wrong, then:")
    print(printable(f"  hanme inspect {name}"))
    print(printable(f"  hanme train {name}"))
