"""The command ``hanme evaluate``."""

from __future__ import annotations

import json

from hanme.cli.options import Allow, Device, Json, RunFolder, Source, the_run
from hanme.cli.show import print_probabilities, print_scores


def evaluate(
    run: RunFolder = None,
    data: Source = None,
    allow: Allow = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Load a run's weights and score them again, with each decision rule.

    Brier score and calibration error are those measured when it was trained, by weights that had
    not seen the nodes; reliability.svg in the run folder draws them.
    """
    from hanme.runs import OpenedRun

    opened = OpenedRun.open(the_run(run), source=data)
    scores, probabilities = opened.evaluate(), opened.result["probabilities"]
    if json_:
        print(json.dumps(scores | {"probabilities": probabilities}))
    else:
        print_scores(scores)
        print_probabilities(probabilities)
