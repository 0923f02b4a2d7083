"""Attention over channels, the paper's over metapaths."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hanme.common import ranks
from hanme.nn.fusions.base import Fusion
from hanme.nn.inits import glorot


class SemanticAttention(Fusion):
    r"""Weigh the channels, as HAN does: :math:`Z = \sum_\Phi \beta_\Phi z^\Phi`.

    :math:`\beta = \mathrm{softmax}_\Phi(w_\Phi)` with :math:`w_\Phi` the mean of
    :math:`q \cdot \tanh(W z^\Phi + b)` over all roots of a batch. Training in batches keeps a
    running ``mean`` of w for inference, so that a prediction does not depend on the other roots of
    its batch; without it, β depends on the roots.
    """

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__(vectors, channels)
        self.vectors = vectors
        self.k_lin = nn.Linear(channels, channels)
        self.q = nn.Parameter(torch.empty(1, channels))
        self.mean: Tensor | None
        self.register_buffer("mean", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.k_lin.reset_parameters()
        glorot(self.q)
        self.mean = None

    @torch.no_grad()
    def update_running_mean(self, momentum: float) -> None:
        """Move ``mean`` towards the w of the last batch: mean + momentum (w - mean)."""
        assert self._last is not None
        before = self._last if self.mean is None else self.mean
        self.mean = torch.lerp(before, self._last, momentum)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return Z, ``[R, C]``, from z of each channel, ``[R, C]``."""
        z = torch.stack(list(vectors))
        return torch.einsum("p,pnc->nc", self._beta(z), z)

    def weights(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return β."""
        return self._beta(torch.stack(list(vectors)))

    _last: Tensor | None = None

    def _beta(self, z: Tensor) -> Tensor:
        if self.mean is not None and not self.training:
            return torch.softmax(self.mean, dim=0)
        rows = torch.tanh(self.k_lin(z))
        w = (self.q * (ranks.mean(rows, 1) if self.training else rows.mean(1))).sum(-1)
        self._last = w.detach()
        return torch.softmax(w, dim=0)

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take the w of predictions, or know that training has fixed none."""
        mean = state.get(f"{prefix}mean")
        self.mean = None if mean is None else torch.empty_like(mean, device=self.q.device)
        super()._load_from_state_dict(state, prefix, *rest)
