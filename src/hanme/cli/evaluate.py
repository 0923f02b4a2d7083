"""hanme evaluate"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.options import Json, Source
from hanme.cli.show import print_scores


def evaluate(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    data: Source = None,
    json_: Json = False,
) -> None:
    """Loads a run's weights and scores them again, with both decision rules."""
    from hanme import training

    scores = training.evaluate(run, source=data)
    if json_:
        print(json.dumps(scores))
    else:
        print_scores(scores)
