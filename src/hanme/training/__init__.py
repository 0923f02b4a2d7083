"""Train a model on a graph: epochs, early stopping, the loss-aware schedule, scores."""

from hanme.training.config import TrainingConfig
from hanme.training.metrics import F1, f1
from hanme.training.schedule import LTS
from hanme.training.trainer import Batches, Epoch, Trainer, draw_weights, size_weights

__all__ = [
    "F1",
    "LTS",
    "Batches",
    "Epoch",
    "Trainer",
    "TrainingConfig",
    "draw_weights",
    "f1",
    "size_weights",
]
