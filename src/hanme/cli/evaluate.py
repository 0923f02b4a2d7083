"""The command ``hanme evaluate``."""

from __future__ import annotations

import json
from pathlib import Path

from hanme.cli.options import find_run
from hanme.cli.show import print_rules, print_scores, print_suspicion


def evaluate(
    run: Path | None = None,
    *,
    data: Path | None = None,
    allow: list[str] | None = None,
    device: str | None = None,
    json_: bool = False,
) -> None:
    """Score a run again with each decision rule.

    Log loss, ROC-AUC, average precision, the lift of the tenth with the largest probabilities,
    Brier score and calibration error are those of training, on nodes held out from the weights.
    """
    from hanme.runs import OpenedRun

    opened = OpenedRun.open(find_run(run), source=data)
    scores, probabilities = opened.evaluate(), opened.result["probabilities"]
    if json_:
        found = {"suspicion": opened.result.get("suspicion", {})}
        print(json.dumps(scores | {"probabilities": probabilities} | found))
        return
    print_suspicion(opened.result)
    print_rules(scores)
    for part in ("val", "oof", "test"):
        print_scores(opened.config.model.name, opened.result | {"scores": scores}, part)
