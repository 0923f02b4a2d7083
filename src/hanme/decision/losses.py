"""The loss of a node, and the logits that minimise it without any feature."""

import torch
import torch.nn.functional as F
from torch import Tensor


def node_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Return each node's loss: cross-entropy, binary where nodes have several labels."""
    if y.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, y, reduction="none").mean(1)
    return F.cross_entropy(logits, y, reduction="none")


def total_loss(logits: Tensor, targets: Tensor, *, multilabel: bool) -> tuple[Tensor, Tensor]:
    """Return the sum of all nodes' losses, over all labels, and its gradient by the logits.

    Args:
        logits: ``[n, C]``.
        targets: The labels as 0 and 1, ``[n, C]``.
        multilabel: Whether nodes have several labels.
    """
    if multilabel:
        losses = F.softplus(logits) - targets * logits
        return losses.double().sum(), torch.sigmoid(logits) - targets
    losses = torch.logsumexp(logits, 1) - (targets * logits).sum(1)
    return losses.double().sum(), torch.softmax(logits, 1) - targets


def base_rate_logits(y: Tensor, labels: int) -> Tensor:
    """Return the logits ``[C]`` of the shares of the labels ``[n]`` or ``[n, C]`` of some nodes."""
    if y.dim() == 2:
        return torch.logit((y > 0).double().mean(0).clamp(1e-4, 1 - 1e-4))
    count = torch.bincount(y, minlength=labels).double()
    return (count / max(1, len(y))).clamp(1e-4, 1 - 1e-4).log()
