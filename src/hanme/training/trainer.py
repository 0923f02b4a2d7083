"""Training with early stopping; the best epoch's weights are really kept."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn.parameter import Parameter, is_lazy
from torch.optim import Optimizer

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.nn.model import Model
from hanme.training.config import TrainingConfig
from hanme.training.metrics import F1, scores


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


Batches = Callable[[int], Iterable[Tensor]]
"""Gives, for an epoch, the training nodes of each of its steps."""


class Trainer:
    """Train a model on a graph, an epoch at a time; its state can be taken out and put back.

    Only labels of training nodes are trained on, and only those of validation nodes choose the best
    epoch. The model keeps the weights it comes with: :func:`draw_weights` draws them by seed.

    Args:
        model: The model.
        graph: The graph.
        config: How to train.
        optimizer: Makes an optimizer of the model's parameters (default: Adam, as in `config`).
        batches: The training nodes of each step (default: one step an epoch, on all of them).
        random: The state of the random generator that dropout draws from (default: the seed's).
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        config: TrainingConfig,
        *,
        optimizer: Callable[[Iterator[Parameter]], Optimizer] | None = None,
        batches: Batches | None = None,
        random: Tensor | None = None,
    ) -> None:
        graph.check_trainable()
        size_weights(model, graph)
        _keep_memory()
        self.model, self.graph, self.config = model, graph, config
        self.labels = graph.training_labels
        self.batches = batches
        self.optimizer = (optimizer or self._adam)(iter(_trained(model)))
        # The draws are the trainer's own: nothing drawn elsewhere in between changes a result.
        self._random = torch.Generator().manual_seed(config.seed).get_state()
        self._random = self._random if random is None else random
        self.progress = Progress()
        self._recent: list[float] = []  # the scores that the next one is averaged with
        self.best: dict[str, Tensor] = {}

    def _adam(self, parameters: Iterator[Parameter]) -> Optimizer:
        kind = torch.optim.AdamW if self.config.optimizer == "adamw" else torch.optim.Adam
        return kind(
            list(parameters) or [torch.zeros(0, requires_grad=True)],
            lr=self.config.lr,
            weight_decay=self.config.weight_decay,
        )

    @property
    def finished(self) -> bool:
        """Whether the last epoch was reached or patience ran out."""
        progress, lts = self.progress, self.config.lts
        if not _trained(self.model):
            return True
        waited = progress.epoch - max(progress.best_epoch, lts.until if lts else 0)
        return progress.epoch >= self.config.epochs or waited >= self.config.patience

    def step(self) -> Epoch:
        """Train for `every` epochs, then score training and validation nodes."""
        began, before = time.perf_counter(), self.progress.epoch
        last = max(self.config.epochs, before + 1)
        epoch = self.progress.epoch = min(before + self.config.every, last)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            for number in range(before + 1, epoch + 1):
                loss, share = self._epoch(number)
            self._random = torch.get_rng_state()
        logits = self.logits()
        y, val = self.graph.y, self.graph.split.val
        seen = {"train": self.graph.split.train, "val": val}
        found = scores(logits, y, seen, self.config.plain)
        val_loss = float(node_losses(logits[val], y[val]).mean())
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
        """Say how good an epoch is, by the validation nodes; the highest is kept."""
        select, lts = self.config.select, self.config.lts
        if select == "last":
            return epoch
        if select == "loss":  # which easy nodes alone drive up: LTS has to come to all of them
            early = lts is not None and epoch < min(lts.until, self.config.epochs)
            return -math.inf if early else -loss
        return float(getattr(found, select))

    def run(self, *callbacks: Callable[[Epoch], None]) -> None:
        """Train to the end and put the best epoch's weights into the model.

        Args:
            *callbacks: Called with each epoch that was scored.
        """
        while not self.finished:
            epoch = self.step()
            for callback in callbacks:
                callback(epoch)
        if self.best:
            self.model.load_state_dict(self.best)

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Return the logits of all target nodes with the model's present weights."""
        self.model.train(False)
        return self.model(self.graph.x_dict, self.graph.edge_index_dict, labels=self.labels)

    def _epoch(self, epoch: int) -> tuple[float, float]:
        """Take the steps of an epoch; return its mean loss and the share of nodes it was over."""
        self.model.train(True)
        train = self.graph.split.train.nonzero().flatten()
        batches = [train] if self.batches is None else self.batches(epoch)
        total, count, share = 0.0, 0, 1.0
        for roots in batches:
            losses = self._losses(roots)
            if self.config.lts is not None:
                share = self.config.lts.share(epoch)
                losses = losses[self.config.lts.easiest(losses, epoch)]
            loss = losses.mean()
            if not loss.isfinite():
                raise HanmeError(
                    f"epoch {epoch}: the loss is {loss.item()}; "
                    f"try a smaller lr than {self.config.lr}"
                )
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += float(loss.detach()) * len(losses)
            count += len(losses)
        return total / count, share

    def _losses(self, roots: Tensor) -> Tensor:
        """Return the loss of each of some training nodes."""
        whole = self.batches is None and self.model.steps_on == "graph"
        out = self.model(
            self.graph.x_dict,
            self.graph.edge_index_dict,
            roots=None if whole else roots,
            labels=self.labels,
        )
        return node_losses(out[roots] if whole else out, self.graph.y[roots])

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return all that the rest of the training depends on: tensors and numbers."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{name}": value for name, value in state.items()}
        tensors["random"] = self._random
        tensors["recent"] = torch.tensor(self._recent, dtype=torch.float64)
        return tensors, asdict(self.progress)

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Go back to a state, so that training goes on as if never interrupted."""
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


def draw_weights(model: Model, graph: Graph, seed: int) -> Tensor:
    """Draw all weights of a model anew by seed.

    Returns:
        The state of the random generator after the draws; dropout draws go on from it.
    """
    size_weights(model, graph)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.reset_parameters()
        return torch.get_rng_state()


@torch.no_grad()
def start_at_odds(model: Model, graph: Graph) -> None:
    """Begin a linear head at the labels' log odds among training nodes, with small weights."""
    head = getattr(model, "head", None)
    if isinstance(head, torch.nn.Linear) and head.bias is not None:
        share = graph.label_matrix[graph.split.train].double().mean(0).clamp(1e-4, 1 - 1e-4)
        head.bias.copy_(torch.logit(share) if graph.multilabel else share.log())
        head.weight.mul_(0.1)


def _trained(model: Model) -> list[Parameter]:
    """Return the parameters that gradients train; those of wide channels are fitted."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@torch.no_grad()
def size_weights(model: Model, graph: Graph) -> None:
    """Give weights of unknown size (``-1``) the size that a graph's features ask for."""
    if any(is_lazy(parameter) for parameter in model.parameters()):
        model.train(False)
        model(graph.x_dict, graph.edge_index_dict, labels=graph.training_labels)


def _keep_memory() -> None:
    """Make glibc keep what an epoch frees for the next one, instead of returning it each time."""
    largest, trim = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3)
    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(largest, 2**25)
        mallopt(trim, 2**31 - 1)
