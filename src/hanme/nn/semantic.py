"""Attention over metapaths."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot


class SemanticAttention(nn.Module):
    r"""Weighs the metapaths of a node type: :math:`Z = \sum_\Phi \beta_\Phi z^\Phi`.

    :math:`\beta = \mathrm{softmax}_\Phi(w_\Phi)` with :math:`w_\Phi` the mean over all nodes of
    :math:`q \cdot \tanh(W z^\Phi + b)`.

    Args:
        channels: The size of z.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.k_lin = nn.Linear(channels, channels)
        self.q = nn.Parameter(torch.empty(1, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.k_lin.reset_parameters()
        glorot(self.q)

    def forward(self, zs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """z of each metapath, ``[N, C]``, to Z, ``[N, C]``, and β."""
        z = torch.stack(list(zs))
        w = (self.q * torch.tanh(self.k_lin(z)).mean(1)).sum(-1)
        beta = torch.softmax(w, dim=0)
        return torch.einsum("p,pnc->nc", beta, z), beta
