"""How long an epoch takes on this machine, measured on a few roots before any is paid for."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from hanme.graph import Graph
from hanme.nn.batch import Batch
from hanme.nn.channels import MetapathChannels
from hanme.nn.model import ChannelModel
from hanme.ops import BACKENDS, choose_backend

SAMPLE = 1_000_000
"""About how many instances are walked to measure, if there are more."""
LONG = 1.0
"""After so many seconds, no measurement is repeated."""


def seconds_per_epoch(model: ChannelModel, graph: Graph) -> float:
    """Estimate how many seconds an epoch takes: a step of training, and the scores after it.

    All features are projected, and roots drawn at random attend to their instances: first a few,
    then more of them. What the second takes longer is for its instances, and is scaled by these.
    Left out is what follows attention, which takes little.
    """
    parts = [part for part in model.parts if isinstance(part, MetapathChannels)]
    batch = Batch.of(graph)
    with torch.random.fork_rng(devices=[]):
        _pass(parts, batch, torch.zeros(1, dtype=torch.long))  # loads compiled code, builds chains
        chains = [chain for part in parts for chain in part.chains(batch)]
        counts = torch.stack([chain.count().double() for chain in chains]).sum(0) + 1
        drawn = torch.randperm(len(counts), generator=torch.Generator().manual_seed(0))
        total = counts[drawn].cumsum(0)
        few, more = (int((total < size).sum()) + 1 for size in (SAMPLE / 8, SAMPLE))
        more = min(more, len(counts))
        second = _fastest(parts, batch, drawn[:more])
        if more == len(counts):
            return second
        first = _fastest(parts, batch, drawn[:few])
    each = max(0.0, second - first) / float(total[more - 1] - total[few - 1])
    return second + each * float(total[-1] - total[more - 1])


def _fastest(parts: list[MetapathChannels], batch: Batch, roots: Tensor) -> float:
    """Return the shorter of two passes, of one if it is long: the first also touches new memory."""
    once = _pass(parts, batch, roots.sort().values)
    return once if once > LONG else min(once, _pass(parts, batch, roots.sort().values))


def _pass(parts: list[MetapathChannels], batch: Batch, roots: Tensor) -> float:
    """Attend to the instances of some roots as an epoch does; return the seconds it took."""
    began = time.perf_counter()
    for training in (True, False):
        with torch.set_grad_enabled(training):
            for part in parts:
                part.train(training)
                backend = BACKENDS[choose_backend(part.backend, roots.device)]
                found = [
                    backend(replace(traced.problem, roots=roots, dropout=training * part.dropout))
                    for traced in part.trace(batch)
                ]
                if training:
                    torch.stack([z.sum() for z in found]).sum().backward()  # type: ignore[no-untyped-call]
                    part.zero_grad(set_to_none=True)
    return time.perf_counter() - began
