"""The command ``hanme store``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hanme.cli.options import Allow, DataSet, FeaturesOption, Options, Source, pairs
from hanme.cli.show import printable
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.graph.features import Features


def store(
    data_set: DataSet,
    out: Annotated[Path | None, typer.Option(help="A new or empty folder to store it in.")] = None,
    half: Annotated[bool, typer.Option("--half", help="Store features in half precision.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the files of a stored graph instead.")
    ] = False,
    data: Source = None,
    allow: Allow = None,
    features: FeaturesOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Draws the split.")] = 483,
    option: Options = None,
) -> None:
    """Store a graph on disk, to be mapped instead of loaded: for graphs larger than memory.

    hanme store films --out films.store
    """
    from hanme.data import check_store, is_store, store_graph

    if check:
        if not is_store(data_set):
            raise HanmeError(f"{data_set}: no stored graph is there")
        size = check_store(Path(data_set))
        print(f"{data_set}: all {size:,} bytes are as they were stored.")
        return
    if out is None:
        raise HanmeError("name a folder to store the graph in: --out FOLDER")
    store_graph(
        data_set,
        out,
        half=half,
        progress=lambda text: print(printable(text), flush=True),
        source=data,
        features=cast("Features | None", features),
        seed=seed,
        options=pairs(option),
    )
    print(f"The graph is in {out}. Name it wherever a graph is named: hanme train {out}")
