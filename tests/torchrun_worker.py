"""What tests/runs/test_torchrun.py lets torchrun start: train twice, killed once.

    torchrun ... torchrun_worker.py CONFIGS FOLDER

Trains the first configuration into FOLDER/calm, then into FOLDER/killed; there, before torchrun has
started it again, the last rank kills itself in the middle of the second epoch. Then predicts and
scores, and trains the other configurations into folders of their names.
"""

import json
import os
import signal
import sys
from pathlib import Path

from hanme.common import ranks
from hanme.runs import OpenedRun, RunConfig, folder, train
from hanme.training import Trainer

folder.SECONDS = 0.0  # a checkpoint after every step
given = json.loads(Path(sys.argv[1]).read_text())
configs = {name: RunConfig.make(values) for name, values in given.items()}
config = next(iter(configs.values()))
out = Path(sys.argv[2])
descend = Trainer._descend


def descend_or_die(run: Trainer, loss, epoch: int) -> float:
    if (epoch, run.progress.step) == (2, 2) and ranks.rank() == 1 and not ranks.restarted():
        os.kill(os.getpid(), signal.SIGKILL)
    return descend(run, loss, epoch)


with ranks.joined():
    if not ranks.restarted():
        train(config, out / "calm")
    Trainer._descend = descend_or_die
    train(config, out / "killed")
    OpenedRun.open(out / "calm").predict().write(out / "predictions.parquet")
    scores = OpenedRun.open(out / "calm").evaluate()
    for name, other in list(configs.items())[1:]:
        train(other, out / name)
    if ranks.is_first():
        (out / "scores.json").write_text(json.dumps(scores))
