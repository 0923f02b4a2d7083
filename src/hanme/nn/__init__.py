"""Layers and models. A new model is one file here and one line in ``MODELS``."""

from torch import nn

from hanme.nn.conv import HANMEConv
from hanme.nn.han import HAN
from hanme.nn.hanme import HANME
from hanme.nn.semantic import SemanticAttention

__all__ = ["HAN", "HANME", "MODELS", "HANMEConv", "SemanticAttention"]

MODELS: dict[str, type[nn.Module]] = {"hanme": HANME, "han": HAN}
