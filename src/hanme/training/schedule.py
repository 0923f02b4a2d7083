"""LTS, the loss-aware training schedule: train on easy nodes first."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


class LTS(BaseModel):
    r"""Each epoch, train on the share :math:`\lambda_t` of training nodes with the least loss.

    Of `"Loss-aware Curriculum Learning for Heterogeneous Graph Neural Networks"
    <https://arxiv.org/abs/2402.18875>`_; works with any model.

    Args:
        pace: How the share grows to 1 from ``start`` at t = 0, before the first epoch: ``"linear"``
            :math:`\lambda_0 + (1-\lambda_0) t/T`, ``"root"``
            :math:`\sqrt{\lambda_0^2 + (1-\lambda_0^2) t/T}` or ``"geometric"``
            :math:`2^{\log_2 \lambda_0 - \log_2 \lambda_0 \cdot t/T}`.
        start: :math:`\lambda_0`.
        until: T, the epoch from which on all nodes are trained on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pace: Literal["linear", "root", "geometric"] = "linear"
    start: float = Field(default=0.1, gt=0, le=1)
    until: int = Field(default=100, ge=1)

    def share(self, epoch: int) -> float:
        """Return λ_t of an epoch, the first being 1."""
        if epoch >= self.until:
            return 1.0
        t, lam = epoch / self.until, self.start
        match self.pace:
            case "linear":
                return lam + (1 - lam) * t
            case "root":
                return math.sqrt(lam**2 + (1 - lam**2) * t)
            case "geometric":
                return float(lam ** (1 - t))

    def easiest(self, losses: Tensor, epoch: int) -> Tensor:
        """Return the places of the nodes to train on this epoch, at least one."""
        count = max(1, math.ceil(self.share(epoch) * losses.numel()))
        return torch.argsort(losses.detach(), stable=True)[:count]
