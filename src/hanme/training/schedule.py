"""LTS, the loss-aware training schedule: train on easy nodes first."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from hanme.common.options import Closed


class LTS(Closed):
    r"""Each epoch, train on the share :math:`\lambda_t` of training nodes with the least loss.

    Of `"Loss-aware Curriculum Learning for Heterogeneous Graph Neural Networks"
    <https://arxiv.org/abs/2402.18875>`_; works with any model.
    """

    pace: Literal["linear", "root", "geometric"] = Field(
        default="linear",
        description="Loss-aware training schedule: how the share λ of training "
        "nodes grows from λ0 to 1 over the epochs; none: no schedule.",
    )
    start: float = Field(
        default=0.1, gt=0, le=1, description="Share λ0 of training nodes before the first epoch."
    )
    until: int = Field(
        default=100, ge=1, description="Epoch T from which all training nodes are used."
    )

    def share(self, epoch: int) -> float:
        r"""Return :math:`\lambda_t` of an epoch, counted from 1.

        ``"linear"``: :math:`\lambda_0 + (1-\lambda_0) t/T`; ``"root"``:
        :math:`\sqrt{\lambda_0^2 + (1-\lambda_0^2) t/T}`; ``"geometric"``:
        :math:`\lambda_0^{1 - t/T}`.
        """
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
