"""Run folders: from a configuration to a finished run, and back to its model and predictions."""

from hanme.runs.build import build_network, load_graph, takes_metapaths, with_metapaths
from hanme.runs.config import DataConfig, ModelConfig, RunConfig
from hanme.runs.folder import Run, latest_run, new_folder
from hanme.runs.listing import ListedRun, list_runs
from hanme.runs.opened import OpenedRun
from hanme.runs.prediction import Prediction
from hanme.runs.resolve import resolve
from hanme.runs.train import train

__all__ = [
    "DataConfig",
    "ListedRun",
    "ModelConfig",
    "OpenedRun",
    "Prediction",
    "Run",
    "RunConfig",
    "build_network",
    "latest_run",
    "list_runs",
    "load_graph",
    "new_folder",
    "resolve",
    "takes_metapaths",
    "train",
    "with_metapaths",
]
