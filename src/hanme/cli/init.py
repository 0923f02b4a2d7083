"""hanme init"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(folder: Annotated[Path, typer.Argument(help="A folder of tables.")]) -> None:
    """Looks at a folder of tables and writes a first graph.toml, with its guesses explained."""
    from hanme.datasets.tables_init import init as write

    path = write(folder)
    print(f"{path} is written. Read it, change what is wrong, then: hanme inspect {path}")
