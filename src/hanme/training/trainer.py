"""Training with early stopping; the best epoch's weights are really kept."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn.parameter import Parameter, is_lazy
from torch.optim import Optimizer

from hanme.common import device, ranks
from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.nn.batch import Batch
from hanme.nn.model import Model, batch_of
from hanme.training.batches import (
    alike_until_known,
    key,
    logit_batches,
    logits_of,
    prefetched,
    refuse_norms,
    shuffled,
    update_running_means,
)
from hanme.training.config import TrainingConfig
from hanme.training.metrics import F1, Tally, tally_parts


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
    """How far training has come.

    Args:
        epoch: The last epoch that was scored.
        best_epoch: The best of them.
        best_score: Its score.
        trained: The last epoch whose steps were all taken.
        step: How many steps of the next one were taken.
        total: The sum of their losses.
        count: Over how many nodes that is.
    """

    epoch: int = 0
    best_epoch: int = 0
    best_score: float = -math.inf
    trained: int = 0
    step: int = 0
    total: float = 0.0
    count: int = 0


class Trainer:
    """Train a model on a graph, an epoch at a time; its state can be taken out and put back.

    Only labels of training nodes are trained on, and only those of validation nodes choose the best
    epoch. The model keeps the weights it comes with: :func:`draw_weights` draws them by seed.

    Args:
        model: The model.
        graph: The graph.
        config: How to train.
        optimizer: Makes an optimizer of the model's parameters (default: Adam, as in `config`).
        random: The state of the random generator that dropout draws from (default: the seed's).
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        config: TrainingConfig,
        *,
        optimizer: Callable[[Iterator[Parameter]], Optimizer] | None = None,
        random: Tensor | None = None,
    ) -> None:
        graph.check_trainable()
        size_weights(model, graph)
        _keep_memory()
        self.model, self.graph, self.config = model, graph, config
        if config.batch_size is not None:
            refuse_norms(model)
        elif model.samples():
            raise HanmeError("--per-root draws instances for batches: give a --batch-size")
        self.optimizer = (optimizer or self._adam)(model.parameters())
        # The draws are the trainer's own: nothing drawn elsewhere in between changes a result.
        self._random = torch.Generator().manual_seed(config.seed).get_state()
        self._random = self._random if random is None else random
        self.progress = Progress()
        self._recent: list[float] = []  # the scores that the next one is averaged with
        self.best: dict[str, Tensor] = {}
        self._easiest: Tensor | None = None  # the nodes that LTS has chosen for the epoch
        self.on_step: Callable[[], None] = lambda: None  # called after each step of a batch

    def _adam(self, parameters: Iterator[Parameter]) -> Optimizer:
        kind = torch.optim.AdamW if self.config.optimizer == "adamw" else torch.optim.Adam
        return kind(parameters, lr=self.config.lr, weight_decay=self.config.weight_decay)

    @property
    def finished(self) -> bool:
        """Whether the last epoch was reached or patience ran out."""
        progress, lts = self.progress, self.config.lts
        waited = progress.epoch - max(progress.best_epoch, lts.until if lts else 0)
        return progress.epoch >= self.config.epochs or waited >= self.config.patience

    def step(self) -> Epoch:
        """Train for `every` epochs, then score training and validation nodes."""
        began, progress = time.perf_counter(), self.progress
        before, last = progress.epoch, max(self.config.epochs, progress.epoch + 1)
        epoch = min(before + self.config.every, last)
        place = self.model.device
        with device.forked_rng(place):
            device.set_rng_state(self._random, place)
            while progress.trained < epoch:
                loss, share = self._epoch(progress.trained + 1)
                progress.trained += 1
            self._random = device.rng_state(place)
        progress.epoch = epoch
        found, val_loss = self._scores()
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

    def logits(self, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all) with the present weights."""
        return logits_of(self.model, self.graph, nodes, batch_size=self.config.batch_size)

    def _scores(self) -> tuple[dict[str, F1], float]:
        """Score training and validation nodes; return the loss of the latter, too."""
        split, size = self.graph.split, self.config.batch_size
        nodes = None if size is None else (split.train | split.val).nonzero().flatten()
        tallies = {part: Tally(len(self.graph.labels)) for part in ("train", "val")}
        losses = [torch.zeros(0)]
        for some, logits in logit_batches(self.model, self.graph, nodes, size):
            y, of = self.graph.labels_of(some)
            tally_parts(tallies, logits, y, {"train": of.train, "val": of.val}, self.config.plain)
            losses.append(node_losses(logits[of.val], y[of.val]))
        for tally in tallies.values():
            tally.counts = ranks.total(tally.counts)
        found = {part: tally.f1() for part, tally in tallies.items()}
        return found, float(ranks.mean(torch.cat(losses), 0))

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
        nodes, share = self._chosen(epoch)
        nodes = shuffled(nodes, seed, epoch)
        left = torch.split(nodes, size)[progress.step :]
        mine = [ranks.share(roots) for roots in left]
        batches = prefetched(self.model, self.graph, mine, seed=key(seed, epoch))
        self.model.train(True)
        for every, roots, batch in zip(left, mine, batches, strict=True):
            torch.manual_seed(key(seed, epoch, progress.step))
            loss = self._losses(batch, roots).sum() / len(every)
            progress.total += self._descend(loss, epoch) * len(every)
            progress.count += len(every)
            progress.step += 1
            update_running_means(self.model)
            self.on_step()
        mean, self._easiest = progress.total / progress.count, None
        progress.step, progress.total, progress.count = 0, 0.0, 0
        return mean, share

    def _chosen(self, epoch: int) -> tuple[Tensor, float]:
        """Return the training nodes of an epoch, with LTS the easiest by the present weights."""
        train, lts = self.graph.split.train.nonzero().flatten(), self.config.lts
        if lts is None or lts.share(epoch) == 1:
            return train, 1.0
        if self._easiest is None:
            with alike_until_known(self.model):
                losses = node_losses(self.logits(train), self.graph.y[train])
            self._easiest = train[lts.easiest(losses, epoch)]
        return self._easiest, lts.share(epoch)

    def _losses(self, batch: Batch, nodes: Tensor) -> Tensor:
        """Return the loss of each of some training nodes."""
        out = self.model(batch)
        whole = batch.roots is None  # all nodes were computed
        y, _ = self.graph.labels_of(nodes)
        return node_losses(out[nodes] if whole else out, y.to(out.device))

    def _descend(self, loss: Tensor, epoch: int) -> float:
        """Take a step down the loss, the sum over all ranks, and return it."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        total = ranks.add_gradients(list(self.model.parameters()), loss.detach())
        if not math.isfinite(total):
            raise HanmeError(
                f"epoch {epoch}: the loss is {total}; try a smaller lr than {self.config.lr}"
            )
        self.optimizer.step()
        return total

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return all that the rest of the training depends on: tensors and numbers."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{name}": value for name, value in state.items()}
        tensors["random"] = self._random
        tensors["recent"] = torch.tensor(self._recent, dtype=torch.float64)
        if self._easiest is not None:
            tensors["easiest"] = self._easiest
        return tensors, asdict(self.progress)

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Go back to a state, so that training goes on as if never interrupted."""
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "adam": {}}
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
        self._random = tensors["random"]
        self._recent = tensors["recent"].tolist()
        self._easiest = tensors.get("easiest")
        whole = {k: int(v) for k, v in numbers.items() if k not in ("best_score", "total")}
        self.progress = Progress(**numbers | whole)  # type: ignore[arg-type]


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
        y = graph.y[graph.split.train]
        count = (
            (y > 0).sum(0) if graph.multilabel else torch.bincount(y, minlength=head.out_features)
        )
        share = (count.double() / len(y)).clamp(1e-4, 1 - 1e-4)
        head.bias.copy_(torch.logit(share) if graph.multilabel else share.log())
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
