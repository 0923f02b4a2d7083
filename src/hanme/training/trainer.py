"""Full-graph training with early stopping; the best epoch's weights are really kept."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError
from hanme.training.config import TrainingConfig
from hanme.training.metrics import F1, node_losses, scores


@dataclass(frozen=True)
class Epoch:
    """What is known after an epoch: scores are of the weights the epoch ended with."""

    epoch: int
    loss: float
    share: float
    val_loss: float
    train_micro: float
    train_macro: float
    val_micro: float
    val_macro: float
    seconds: float


@dataclass
class Progress:
    """How far training has come."""

    epoch: int = 0
    best_epoch: int = 0
    best_score: float = -math.inf


class Trainer:
    """Trains a model on a graph, an epoch at a time; its state can be taken out and put back.

    Only labels under ``train_mask`` are trained on, and only those under ``val_mask`` choose the
    best epoch.

    Args:
        model: Called with the graph, gives a logit per target node and label; its weights are
            drawn anew, by seed, with its ``reset_parameters``.
        data: The graph, with ``target``, ``y`` and masks as :mod:`hanme.datasets` makes it.
        config: How to train.
    """

    def __init__(self, model: Any, data: HeteroData, config: TrainingConfig) -> None:
        self.model = model
        self.data = data
        self.config = config
        self.y, self.masks = _labels(data)
        _keep_memory()
        self.logits()  # gives lazy weights their sizes
        # The draws are the trainer's own: nothing drawn elsewhere in between changes a result.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model.reset_parameters()
            self._random = torch.get_rng_state()
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.progress = Progress()
        self._recent: list[float] = []  # the scores that the next one is averaged with
        self.best: dict[str, Tensor] = {}

    @property
    def finished(self) -> bool:
        """Whether the last epoch was reached or patience ran out."""
        progress, lts = self.progress, self.config.lts
        waited = progress.epoch - max(progress.best_epoch, lts.until if lts else 0)
        return progress.epoch >= self.config.epochs or waited >= self.config.patience

    def step(self) -> Epoch:
        """A step of Adam in each of `every` epochs, then the scores on training and validation
        nodes."""
        began, before = time.perf_counter(), self.progress.epoch
        last = max(self.config.epochs, before + 1)
        epoch = self.progress.epoch = min(before + self.config.every, last)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            for number in range(before + 1, epoch + 1):
                loss, share = self._train(number)
            self._random = torch.get_rng_state()
        logits = self.logits()
        seen = {name: self.masks[name] for name in ("train", "val")}
        found = scores(logits, self.y, seen, fallback=self.config.fallback)
        val_loss = float(node_losses(logits[seen["val"]], self.y[seen["val"]]).mean())
        score = self._score(epoch, val_loss, found["val"])
        if score > -math.inf:
            self._recent = [*self._recent, score][-self.config.smooth :]
            score = statistics.fmean(self._recent)
        if score > self.progress.best_score or not self.best:
            self.progress.best_epoch, self.progress.best_score = epoch, score
            self.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        return Epoch(
            epoch,
            loss,
            share,
            val_loss,
            *found["train"],
            *found["val"],
            seconds=(time.perf_counter() - began) / (epoch - before),
        )

    def _score(self, epoch: int, loss: float, found: F1) -> float:
        """How good an epoch is, by the validation nodes; the highest is kept."""
        select, lts = self.config.select, self.config.lts
        if select == "last":
            return epoch
        if select == "loss":  # which easy nodes alone drive up: LTS has to come to all of them
            early = lts is not None and epoch < min(lts.until, self.config.epochs)
            return -math.inf if early else -loss
        return float(getattr(found, select))

    def run(self, on_epoch: Callable[[Epoch], None] | None = None) -> None:
        """Trains to the end and puts the best epoch's weights into the model."""
        while not self.finished:
            epoch = self.step()
            if on_epoch is not None:
                on_epoch(epoch)
        self.model.load_state_dict(self.best)

    @torch.no_grad()
    def logits(self) -> Tensor:
        """The logits of all target nodes with the model's present weights."""
        return self.model.train(False)(self.data)

    def _train(self, epoch: int) -> tuple[float, float]:
        self.model.train()
        self.optimizer.zero_grad()
        train = self.masks["train"]
        losses = node_losses(self.model(self.data)[train], self.y[train])
        share = 1.0
        if self.config.lts is not None:
            share = self.config.lts.share(epoch)
            losses = losses[self.config.lts.easiest(losses, epoch)]
        loss = losses.mean()
        if not loss.isfinite():
            raise HanmeError(
                f"epoch {epoch}: the loss is {loss.item()}; try a smaller lr than {self.config.lr}"
            )
        loss.backward()
        self.optimizer.step()
        return float(loss.detach()), share

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """All that the rest of the training depends on: tensors and numbers."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{name}": value for name, value in state.items()}
        tensors["random"] = self._random
        tensors["recent"] = torch.tensor(self._recent, dtype=torch.float64)
        return tensors, asdict(self.progress)

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Goes back to a state, so that training goes on as if never interrupted."""
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "adam": {}}
        for key, value in tensors.items():
            if key not in ("random", "recent"):
                part, name = key.split(".", 1)
                parts[part][name] = value
        self.model.load_state_dict(parts["model"])
        self.best = parts["best"]
        adam = self.optimizer.state_dict()
        for key, value in parts["adam"].items():
            i, name = key.split(".", 1)
            adam["state"].setdefault(int(i), {})[name] = value
        self.optimizer.load_state_dict(adam)
        self._random = tensors["random"]
        self._recent = tensors["recent"].tolist()
        self.progress = Progress(
            int(numbers["epoch"]), int(numbers["best_epoch"]), numbers["best_score"]
        )


def _keep_memory() -> None:
    """Has glibc keep what an epoch frees for the next one, instead of giving it back each time."""
    largest, trim = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3)
    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(largest, 2**25)
        mallopt(trim, 2**31 - 1)


def _labels(data: HeteroData) -> tuple[Tensor, dict[str, Tensor]]:
    """The labels and masks of a graph's target nodes, checked."""
    if "target" not in data:
        raise HanmeError("the graph does not say what to classify: set data.target to a node type")
    store = data[data.target]
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        if name not in store:
            raise HanmeError(f"node type {data.target} has no {name}")
    masks: dict[str, Tensor] = {name: store[f"{name}_mask"] for name in ("train", "val", "test")}
    for name in ("train", "val"):
        if not masks[name].any():
            raise HanmeError(f"node type {data.target}: no node under {name}_mask")
        if store.y.dim() == 1 and (store.y[masks[name]] < 0).any():
            raise HanmeError(f"node type {data.target}: a node under {name}_mask has no label")
    y: Tensor = store.y
    return (y.float() if y.dim() == 2 else y), masks
