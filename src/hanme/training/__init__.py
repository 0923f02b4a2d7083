"""Train a model on a graph: epochs, base learners, stacking, decision, scores."""

from hanme.training.base_learners import fit_base_learners
from hanme.training.callbacks import CALLBACKS, Callback, CallbackError, FitState
from hanme.training.config import PAPER, Recipe, TrainingConfig
from hanme.training.final import (
    BaseOutputs,
    FinalOutputs,
    TrainingResult,
    as_predicted,
    finalize,
    fit_base,
    stacking_gain,
)
from hanme.training.metrics import F1, f1
from hanme.training.schedule import LTS
from hanme.training.stacked import Network, Stacked, load_learner
from hanme.training.trainer import (
    Epoch,
    Progress,
    Trainer,
    build_seeded,
    size_weights,
    start_at_odds,
)
from hanme.training.validation import Judged, ValidationNodes

__all__ = [
    "CALLBACKS",
    "F1",
    "LTS",
    "PAPER",
    "BaseOutputs",
    "Callback",
    "CallbackError",
    "Epoch",
    "FinalOutputs",
    "FitState",
    "Judged",
    "Network",
    "Progress",
    "Recipe",
    "Stacked",
    "Trainer",
    "TrainingConfig",
    "TrainingResult",
    "ValidationNodes",
    "as_predicted",
    "build_seeded",
    "f1",
    "finalize",
    "fit_base",
    "fit_base_learners",
    "load_learner",
    "size_weights",
    "stacking_gain",
    "start_at_odds",
]
