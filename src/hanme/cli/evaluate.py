"""The command ``hanme evaluate``."""

from __future__ import annotations

import json

from hanme.cli.options import Allow, Device, Json, RunArgument, Source, find_run
from hanme.cli.show import print_calibration, print_scores


def evaluate(
    run: RunArgument = None,
    data: Source = None,
    allow: Allow = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Score a run again with each decision rule.

    Brier score and calibration error are those of training, on nodes held out from the weights;
    reliability.svg in the run folder draws them.
    """
    from hanme.runs import OpenedRun

    opened = OpenedRun.open(find_run(run), source=data)
    scores, probabilities = opened.evaluate(), opened.result["probabilities"]
    if json_:
        print(json.dumps(scores | {"probabilities": probabilities}))
    else:
        print_scores(scores)
        print_calibration(probabilities)
