"""Training: full graph, early stopping, LTS, and what a run leaves on disk."""

from hanme.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from hanme.training.metrics import F1, f1
from hanme.training.pipeline import evaluate, open_run, train, with_metapaths
from hanme.training.run import Run
from hanme.training.schedule import LTS
from hanme.training.trainer import Epoch, Trainer

__all__ = [
    "F1",
    "LTS",
    "DataConfig",
    "Epoch",
    "ModelConfig",
    "Run",
    "RunConfig",
    "Trainer",
    "TrainingConfig",
    "evaluate",
    "f1",
    "open_run",
    "train",
    "with_metapaths",
]
