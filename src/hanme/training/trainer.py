"""Training with early stopping; the best epoch's weights are really kept."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from hanme.common import device, ranks
from hanme.common.progress import begin_stage, update_stage
from hanme.decision.losses import base_rate_logits, node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.nn.batch import Batch
from hanme.nn.model import Model, batch_of
from hanme.nn.parts import make
from hanme.training.batches import (
    key,
    logit_batches,
    logits_of,
    normalises,
    prefetched,
    shuffled,
    update_running_means,
)
from hanme.training.callbacks import CALLBACKS, Callback, FitState, call_hook
from hanme.training.config import TrainingConfig
from hanme.training.metrics import F1, count_parts

M = TypeVar("M", bound=Model)


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

    epoch: int = 0  # the last one that was scored
    best_epoch: int = 0
    best_score: float = -math.inf
    trained: int = 0  # the last epoch whose steps were all taken
    step: int = 0  # steps of the next one that were taken
    total: float = 0.0  # the sum of their losses
    count: int = 0  # the number of nodes that it is over
    gain: float = 0.0  # the largest gain over the base learners, see `Trainer.gain`
    stopped: bool = False  # whether a callback has ended training after the current epoch


PROBE = 24
"""Epochs after which a network that adds nothing to the base learners is given up."""

GAIN = 2.0
"""Minimum gain over the base learners, in nats over all of these nodes: a likelihood ratio that one
superfluous slope exceeds once in twenty times."""


class Trainer:
    """Train a model on a graph, an epoch at a time; its state can be taken out and put back.

    Only labels of training nodes are trained on, and only those of validation nodes choose the best
    epoch. The model keeps the weights it comes with: :func:`build_seeded` draws them by seed.

    Args:
        model: The model.
        graph: The graph.
        config: How to train.
        random: The state of the random generator that dropout draws from (default: the seed's).
    """

    def __init__(
        self, model: Model, graph: Graph, config: TrainingConfig, *, random: Tensor | None = None
    ) -> None:
        graph.check_trainable()
        size_weights(model, graph)
        _keep_memory()
        self.model, self.graph, self.config = model, graph, config
        if config.batch_size is not None and normalises(model):
            raise HanmeError(
                f"model {type(model).__name__} normalises over all nodes at once and needs the "
                "whole graph: train it without batch_size (--batch-size)"
            )
        if config.batch_size is None and model.samples():
            raise HanmeError("--per-root draws instances for batches: give a --batch-size")
        kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
        self.optimizer = kind(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.callbacks: list[Callback] = [make(given, CALLBACKS, {}) for given in config.callbacks]
        self.fit_state = FitState(model, self.optimizer, config)
        # The draws are the trainer's own: nothing drawn elsewhere in between changes a result.
        seeded = torch.Generator().manual_seed(config.seed).get_state()
        self._random = seeded if random is None else random
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self.on_step: Callable[[], None] = lambda: None  # called after each step of a batch
        # What the logits of validation nodes, [n, C], add to the base learners, in nats.
        self.gain: Callable[[Tensor], float] | None = None

    @property
    def finished(self) -> bool:
        """Whether the last epoch was reached, patience ran out or a callback has stopped."""
        progress, lts = self.progress, self.config.lts
        waited = progress.epoch - max(progress.best_epoch, lts.until if lts else 0)
        useless = progress.epoch >= PROBE and not self.helps
        stopped = progress.stopped and (progress.trained, progress.step) == (progress.epoch, 0)
        ended = progress.epoch >= self.config.epochs or waited >= self.config.patience
        return ended or useless or stopped

    @property
    def helps(self) -> bool:
        """Whether the network adds something to the base learners, as far as that is known."""
        return self.gain is None or self.progress.gain >= GAIN

    @property
    def _done(self) -> float:
        """The share of all epochs that is trained; with early stopping, fewer are needed."""
        nodes, size = int(self.graph.split.train.sum()), self.config.batch_size
        steps = 1 if size is None else -(-nodes // size)
        return (self.progress.trained + self.progress.step / steps) / self.config.epochs

    def run(self, *callbacks: Callable[[Epoch], None]) -> None:
        """Train to the end and put the best epoch's weights into the model.

        Args:
            *callbacks: Called with each epoch that was scored.
        """
        begin_stage("network", self._done)
        self._call("on_fit_start", self.progress.trained)
        while not self.finished:
            epoch = self.step()
            if not self.finished:
                update_stage(self._done, f"validation macro F1 {100 * epoch.val_macro:.1f}")
            for callback in callbacks:
                callback(epoch)
        if self.best:
            self.model.load_state_dict(self.best)
        self._call("on_fit_end", self.progress.epoch)

    def _call(self, hook: str, epoch: int) -> None:
        """Call a hook of all callbacks; what it draws changes no result, and all ranks stop."""
        if self.callbacks:
            state, place = self.fit_state, self.model.device
            state.epoch, state.stopped = epoch, self.progress.stopped
            with torch.random.fork_rng(device.gpus(place)):
                call_hook(self.callbacks, hook, state)
            self.progress.stopped = bool(ranks.total(torch.tensor(float(state.stopped))))
        if hook == "on_epoch_end":
            self.fit_state.metrics = {}

    def step(self) -> Epoch:
        """Train for `every` epochs, then score training and validation nodes."""
        began, progress = time.perf_counter(), self.progress
        before, last = progress.epoch, max(self.config.epochs, progress.epoch + 1)
        epoch = min(before + self.config.every, last)
        place, state = self.model.device, self.fit_state
        with torch.random.fork_rng(device.gpus(place)):
            device.set_rng_state(self._random, place)
            while True:
                number = progress.trained + 1
                if progress.step == 0:  # else a checkpoint of the middle of the epoch follows it
                    self._call("on_epoch_start", number)
                loss, share = self._epoch(number)
                progress.trained, state.metrics = number, {"loss": loss, "share": share}
                if scored := number >= epoch or progress.stopped:
                    break
                self._call("on_epoch_end", number)
                if progress.stopped:
                    break
            self._random = device.rng_state(place)
        progress.epoch = epoch = progress.trained
        train, val, val_loss, logits = self._scores()
        if self.gain is not None:
            progress.gain = max(progress.gain, self.gain(logits))
        score = self._score(epoch, val_loss, val)
        if score > progress.best_score or not self.best:
            progress.best_epoch, progress.best_score = epoch, score
            self.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        seconds = (time.perf_counter() - began) / (epoch - before)
        found = Epoch(epoch, loss, share, val_loss, *train, *val, seconds=seconds)
        state.metrics = {k: v for k, v in asdict(found).items() if k != "epoch"}
        if scored:
            self._call("on_epoch_end", epoch)
        return found

    def _score(self, epoch: int, loss: float, found: F1) -> float:
        """Return how good an epoch is on validation nodes; the highest is kept."""
        select, lts = self.config.select, self.config.lts
        if select == "last":
            return epoch
        if select == "loss":  # which easy nodes alone drive up: LTS has to come to all of them
            early = lts is not None and epoch < min(lts.until, self.config.epochs)
            return -math.inf if early else -loss
        return float(getattr(found, select))

    def logits(self, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all) with the present weights."""
        return logits_of(self.model, self.graph, nodes, batch_size=self.config.batch_size)

    def _scores(self) -> tuple[F1, F1, float, Tensor]:
        """Return the F1 of training and validation nodes, loss and logits of the latter."""
        split, size = self.graph.split, self.config.batch_size
        nodes = None if size is None else (split.train | split.val).nonzero().flatten()
        counts, losses = torch.zeros(2, 2, len(self.graph.labels)).double(), [torch.zeros(0)]
        validation = []
        for some, logits in logit_batches(self.model, self.graph, nodes, size):
            y, of = self.graph.labels_of(some)
            masks = {"train": of.train, "val": of.val}
            counts += torch.stack(list(count_parts(logits, y, masks, self.config.plain).values()))
            validation.append(logits[of.val])
            losses.append(node_losses(logits[of.val], y[of.val]))
        train, val = map(F1.of, ranks.total(counts))
        return train, val, float(ranks.mean(torch.cat(losses), 0)), torch.cat(validation)

    def _epoch(self, epoch: int) -> tuple[float, float]:
        """Take the steps of an epoch; return its mean loss and the share of nodes it was over."""
        if self.config.batch_size is not None:
            return self._batches(epoch, self.config.batch_size)
        self.model.train(True)
        train = self.graph.split.train.nonzero().flatten()
        roots = None if self.model.steps_on == "graph" else train
        losses, share = self._losses(batch_of(self.model, self.graph, roots), train), 1.0
        if self.config.lts is not None:
            share = self.config.lts.share(epoch)
            losses = losses[self.config.lts.easiest(losses, epoch)]
        return self._descend(losses.mean(), epoch), share

    def _batches(self, epoch: int, size: int) -> tuple[float, float]:
        """Take the steps of an epoch, or those that are left of it, each on a batch of nodes.

        Every draw is a function of seed, epoch and step, so that it depends neither on the ranks
        that share a batch nor on where an interrupted epoch goes on.
        """
        progress, seed = self.progress, self.config.seed
        nodes = shuffled(self.graph.split.train.nonzero().flatten(), seed, epoch)
        left = torch.split(nodes, size)[progress.step :]
        mine = [ranks.share(roots) for roots in left]
        batches = prefetched(self.model, self.graph, mine, seed=key(seed, epoch))
        self.model.train(True)
        for every, roots, batch in zip(left, mine, batches, strict=True):
            update_stage(self._done)  # before the step: scores follow the last one
            torch.manual_seed(key(seed, epoch, progress.step))
            losses, count = self._losses(batch, roots), len(every)
            if self.config.lts is not None:  # the easiest of the batch, whoever computes them
                every_loss = ranks.gathered(losses.detach(), count)
                chosen = torch.zeros_like(every_loss, dtype=torch.bool)
                chosen[self.config.lts.easiest(every_loss, epoch)] = True
                losses, count = losses[ranks.share(chosen)], int(chosen.sum())
            progress.total += self._descend(losses.sum() / count, epoch) * count
            progress.count += count
            progress.step += 1
            update_running_means(self.model)
            self.on_step()
        mean = progress.total / progress.count
        progress.step, progress.total, progress.count = 0, 0.0, 0
        return mean, self.config.lts.share(epoch) if self.config.lts else 1.0

    def _losses(self, batch: Batch, nodes: Tensor) -> Tensor:
        """Return the loss of each of some training nodes."""
        out = self.model(batch)
        y, _ = self.graph.labels_of(nodes)
        return node_losses(out[nodes] if batch.roots is None else out, y.to(out.device))

    def _descend(self, loss: Tensor, epoch: int) -> float:
        """Take a step down the loss, the sum over all ranks, and return it."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        total = ranks.add_gradients(list(self.model.parameters()), loss.detach())
        if not math.isfinite(total):
            raise HanmeError(
                f"epoch {epoch}: the loss is {total}; try a smaller lr than {self.config.lr}"
            )
        self._call("on_backward_end", epoch)
        self.optimizer.step()
        return total

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return all that the rest of the training depends on: tensors and numbers."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{name}": value for name, value in state.items()}
        for i, callback in enumerate(self.callbacks):
            tensors |= {f"callback.{i}.{name}": x for name, x in callback.state_dict().items()}
        tensors["random"] = self._random
        lr = float(self.optimizer.param_groups[0]["lr"])  # callbacks change it
        return tensors, asdict(self.progress) | {"lr": lr}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Go back to a state, so that training goes on as if never interrupted."""
        parts: dict[str, dict[str, Tensor]] = {p: {} for p in ("model", "best", "adam", "callback")}
        for path, value in tensors.items():
            if "." in path:
                part, name = path.split(".", 1)
                parts[part][name] = value
        self.model.load_state_dict(parts["model"])
        self.best = parts["best"]
        adam = self.optimizer.state_dict()
        for path, value in parts["adam"].items():
            i, name = path.split(".", 1)
            adam["state"].setdefault(int(i), {})[name] = value
        self.optimizer.load_state_dict(adam)
        self.optimizer.param_groups[0]["lr"] = numbers.get("lr", self.config.lr)
        for number, callback in enumerate(self.callbacks):
            mine, saved = f"{number}.", parts["callback"].items()
            if own := {k.removeprefix(mine): v for k, v in saved if k.startswith(mine)}:
                callback.load_state_dict(own)
        self._random = tensors["random"]
        known = {k: v for k, v in numbers.items() if k != "lr"}
        self.progress = Progress(**known)  # type: ignore[arg-type]


def build_seeded(build: Callable[[], M], graph: Graph, seed: int) -> tuple[M, Tensor]:
    """Build a model with all random numbers drawn from a seed, whatever its modules draw them for.

    Args:
        build: Makes the model.
        graph: The graph whose features weights of unknown size (``-1``) get their size from.
        seed: The seed.

    Returns:
        The model, and the state of the random generator after it; dropout draws go on from it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
        size_weights(model, graph)
        return model, torch.get_rng_state()


@torch.no_grad()
def start_at_odds(model: Model, graph: Graph) -> None:
    """Begin a linear head at the labels' log odds among training nodes, with small weights."""
    head = getattr(model, "head", None)
    if isinstance(head, torch.nn.Linear) and head.bias is not None:
        head.bias.copy_(base_rate_logits(graph.y[graph.split.train], head.out_features))
        head.weight.mul_(0.1)


@torch.no_grad()
def size_weights(model: Model, graph: Graph) -> None:
    """Give weights of unknown size (``-1``) the size that a graph's features ask for."""
    if any(is_lazy(parameter) for parameter in model.parameters()):
        model.train(False)
        model(Batch.of(graph))


def _keep_memory() -> None:
    """Make glibc keep what an epoch frees for the next one, instead of returning it each time."""
    largest, trim = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3)
    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(largest, 2**25)
        mallopt(trim, 2**31 - 1)
