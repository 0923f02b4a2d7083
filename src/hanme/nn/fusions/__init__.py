"""Fusions, chosen by name, class or instance: from several vectors per root to one."""

from __future__ import annotations

from hanme.nn.checks import make
from hanme.nn.fusions.base import Fusion
from hanme.nn.fusions.concat import Concat
from hanme.nn.fusions.semantic import SemanticAttention
from hanme.nn.fusions.transformer import Transformer

__all__ = ["FUSIONS", "Concat", "Fusion", "SemanticAttention", "Transformer", "make_fusion"]

FUSIONS: dict[str, type[Fusion]] = {
    "semantic": SemanticAttention,
    "concat": Concat,
    "transformer": Transformer,
}


def make_fusion(fusion: str | type[Fusion] | Fusion, vectors: int, channels: int) -> Fusion:
    """Make a fusion from its name or class, with default options, or take the one given."""
    return make("fusion", fusion, FUSIONS, {"vectors": vectors, "channels": channels})
