"""The command ``hanme init``."""

from __future__ import annotations

import shlex
from pathlib import Path

from hanme.common.text import printable


def init(
    folder: Path,
    *,
    target: str | None = None,
    label: str | None = None,
    force: bool = False,
    print_: bool = False,
    views: bool = False,
) -> None:
    """Infer a graph from a folder of tables and write a graph.toml with a reason per choice.

    hanme init films

    hanme init films --force --label genre

    Args:
        folder: Folder of tables, or a table.
        target: Table whose rows to classify (default: inferred).
        label: Its label column (default: inferred).
        force: Overwrite an existing graph.toml.
        print_: Print the graph.toml instead of writing it.
        views: Take views of databases as tables; they may repeat the label.
    """
    from hanme.data import METAPATHS
    from hanme.data.tables.draft.draft import output_path, render, write
    from hanme.data.tables.draft.infer import infer

    if print_:
        print(render(infer(folder, target, label, views=views)), end="")
        return
    path = output_path(folder, force=force)
    inferred = infer(folder, target, label, views=views)
    write(inferred, path)
    config = inferred.config
    column = config.nodes[config.target].label
    described = f"label column: {column}" if column else "no label column"
    lines = [f"Wrote {path}. Target: {config.target}; {described}."]
    lines += [f"Skipped: {reason}" for reason in inferred.skipped]
    lines += inferred.notes
    is_data_set = str(path.parent) in METAPATHS
    name = shlex.quote(f"./{path.parent}" if is_data_set else str(path.parent))
    if column and not label:
        lines.append(f"Wrong column? Run hanme init {name} --force --label COLUMN.")
    if not column:
        lines.append(f"Which column holds the labels? hanme init {name} --force --label COLUMN")
    lines.append("Everything is inferred from names and values: check the file, then run:")
    lines += [f"  hanme inspect {name}", f"  hanme train {name}"]
    print(*map(printable, lines), sep="\n")
