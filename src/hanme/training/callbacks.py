"""Callbacks of the trainer: stop, schedule, clip and log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from hanme.common import ranks
from hanme.common.registry import Registry
from hanme.errors import HanmeError, one_line

if TYPE_CHECKING:  # it imports this module
    from hanme.training.config import TrainingConfig


@dataclass
class FitState:
    """What callbacks see of the training of a network, and may change."""

    model: nn.Module
    optimizer: torch.optim.Optimizer  # checkpoints hold its learning rate
    config: TrainingConfig
    epoch: int = 0  # the current one, from 1; 0 before the first
    metrics: dict[str, float] = field(default_factory=dict)  # those since the last `on_epoch_end`
    folder: Path | None = None  # the run folder; None in memory
    stopped: bool = False

    def stop(self) -> None:
        """End training after the current epoch, which is then scored, in all processes."""
        self.stopped = True


class Callback:
    """Base class: a subclass writes some of the five hooks. Its keyword arguments are its options.

    All processes of torchrun call the hooks, which have to change the same in each.
    """

    first_only: ClassVar[bool] = False
    """Whether only the first process calls the hooks, as for a logger."""

    def on_fit_start(self, state: FitState) -> None:
        """Begin training, or continue it after :meth:`load_state_dict`."""

    def on_epoch_start(self, state: FitState) -> None:
        """Prepare an epoch, such as its learning rate."""

    def on_backward_end(self, state: FitState) -> None:
        """Change the gradients of a step, already summed over all processes."""

    def on_epoch_end(self, state: FitState) -> None:
        """Read the loss of an epoch and, if it was scored, its scores, named as in ``Epoch``."""

    def on_fit_end(self, state: FitState) -> None:
        """End training; the model has the weights of the best epoch."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the hooks depend on besides the epoch; checkpoints hold it."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go back to the state in a checkpoint."""


class CallbackError(HanmeError):
    """Raised where a hook raises an exception; a run with a checkpoint can be resumed."""


def call_hook(callbacks: Sequence[Callback], hook: str, state: FitState) -> None:
    """Call a hook of all callbacks, in order."""
    for callback in callbacks:
        try:
            if ranks.is_first() or not callback.first_only:
                getattr(callback, hook)(state)
        except Exception as error:  # whatever it raises
            where = f"callback {type(callback).__name__}: {hook} at epoch {state.epoch}"
            why = f"{type(error).__name__}: {one_line(error)}"
            raise CallbackError(f"{where}: {why}") from error


class TensorBoard(Callback):
    """Log metrics to TensorBoard.

    Args:
        folder: Folder of the events (default: ``tensorboard``, in the run folder if there is one).
    """

    first_only = True

    def __init__(self, folder: str | None = None) -> None:
        self.folder, self._module = folder, _import("torch.utils.tensorboard", "tensorboard")

    def on_fit_start(self, state: FitState) -> None:
        """Open an event file, which replaces later epochs of a run that is resumed."""
        folder = self.folder or (state.folder or Path()) / "tensorboard"
        self._writer = self._module.SummaryWriter(str(folder), purge_step=state.epoch + 1)

    def on_epoch_end(self, state: FitState) -> None:
        """Log a scalar per metric."""
        for name, value in state.metrics.items():
            self._writer.add_scalar(name, value, state.epoch)

    def on_fit_end(self, state: FitState) -> None:
        """Close the event file."""
        self.on_epoch_end(state)  # the scores of an epoch at whose end a callback has stopped
        self._writer.close()


class MLflow(Callback):
    """Log metrics and configuration to MLflow; its environment variables say where."""

    first_only = True

    def __init__(self) -> None:
        self.run_id, self._mlflow = "", _import("mlflow", "mlflow")

    def on_fit_start(self, state: FitState) -> None:
        """Start a run, or continue the one of a run that is resumed."""
        name = state.folder.name if state.folder else None
        run = self._mlflow.start_run(self.run_id or None, run_name=name, nested=True)
        self.run_id = run.info.run_id
        self._mlflow.log_params(dict(state.config))

    def on_epoch_end(self, state: FitState) -> None:
        """Log the metrics."""
        self._mlflow.log_metrics(state.metrics, step=state.epoch)

    def on_fit_end(self, state: FitState) -> None:
        """End the run."""
        self.on_epoch_end(state)  # the scores of an epoch at whose end a callback has stopped
        self._mlflow.end_run()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the id of the run."""
        return {"run_id": torch.tensor(list(self.run_id.encode()), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue the run of this id."""
        self.run_id = bytes(state["run_id"].tolist()).decode()


CALLBACKS: Registry[type[Callback]] = Registry(
    "callback", Callback, {"mlflow": MLflow, "tensorboard": TensorBoard}
)


def _import(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        why = f"{one_line(error)}: pip install 'hanme[{extra}]'"
        raise HanmeError(f"callback {extra}: {why}") from None
