"""Train a model on a graph: epochs, early stopping, the loss-aware schedule, scores."""

from hanme.training.beliefs import belief_blocks
from hanme.training.config import PAPER, Recipe, TrainingConfig
from hanme.training.fit import fit_wide
from hanme.training.metrics import F1, f1
from hanme.training.schedule import LTS
from hanme.training.settle import (
    Answer,
    Settled,
    as_predicted,
    cross_fitted,
    settle,
    wide_part,
)
from hanme.training.trainer import (
    Epoch,
    Trainer,
    draw_weights,
    size_weights,
    start_at_odds,
)
from hanme.training.trees import can_grow
from hanme.training.wide import Wide, choose_wide

__all__ = [
    "F1",
    "LTS",
    "PAPER",
    "Answer",
    "Epoch",
    "Recipe",
    "Settled",
    "Trainer",
    "TrainingConfig",
    "Wide",
    "as_predicted",
    "belief_blocks",
    "can_grow",
    "choose_wide",
    "cross_fitted",
    "draw_weights",
    "f1",
    "fit_wide",
    "settle",
    "size_weights",
    "start_at_odds",
    "wide_part",
]
