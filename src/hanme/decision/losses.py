"""The loss of a node."""

import torch.nn.functional as F
from torch import Tensor


def node_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Return each node's loss: cross-entropy, binary where nodes have several labels."""
    if y.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, y, reduction="none").mean(1)
    return F.cross_entropy(logits, y, reduction="none")
