"""The command ``hanme evaluate``."""

from __future__ import annotations

import json

from hanme.cli.options import Allow, Json, RunFolder, Source, the_run
from hanme.cli.show import print_scores


def evaluate(
    run: RunFolder = None, data: Source = None, allow: Allow = None, json_: Json = False
) -> None:
    """Load a run's weights and score them again, with both decision rules."""
    from hanme import runs

    scores = runs.evaluate(the_run(run), source=data)
    if json_:
        print(json.dumps(scores))
    else:
        print_scores(scores)
