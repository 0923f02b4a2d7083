"""Attention over channels, the paper's over metapaths."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from hanme.nn.fusions.base import Fusion


class SemanticAttention(Fusion):
    r"""Weigh the channels, as HAN does: :math:`Z = \sum_\Phi \beta_\Phi z^\Phi`.

    :math:`\beta = \mathrm{softmax}_\Phi(w_\Phi)` with :math:`w_\Phi` the mean over all roots asked
    for of :math:`q \cdot \tanh(W z^\Phi + b)`: asked for other roots, β is another.

    Args:
        vectors: The number of channels.
        channels: The size of z.
    """

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__(vectors, channels)
        self.k_lin = nn.Linear(channels, channels)
        self.q = nn.Parameter(torch.empty(1, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.k_lin.reset_parameters()
        glorot(self.q)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return Z, ``[R, C]``, from z of each channel, ``[R, C]``."""
        z = torch.stack(list(vectors))
        return torch.einsum("p,pnc->nc", self._beta(z), z)

    def weights(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return β."""
        return self._beta(torch.stack(list(vectors)))

    def _beta(self, z: Tensor) -> Tensor:
        w = (self.q * torch.tanh(self.k_lin(z)).mean(1)).sum(-1)
        return torch.softmax(w, dim=0)
