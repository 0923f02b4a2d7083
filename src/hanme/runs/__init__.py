"""Run folders: from a configuration to a finished run, and back to its model and predictions."""

from hanme.runs.build import build_model, load_graph, takes_metapaths, with_metapaths
from hanme.runs.config import DataConfig, ModelConfig, RunConfig
from hanme.runs.folder import Run, latest_run, new_folder
from hanme.runs.folds import train
from hanme.runs.prediction import Prediction
from hanme.runs.use import evaluate, open_run, predict

__all__ = [
    "DataConfig",
    "ModelConfig",
    "Prediction",
    "Run",
    "RunConfig",
    "build_model",
    "evaluate",
    "latest_run",
    "load_graph",
    "new_folder",
    "open_run",
    "predict",
    "takes_metapaths",
    "train",
    "with_metapaths",
]
