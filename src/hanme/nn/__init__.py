"""Layers and models. A new model is one file here and one line in ``MODELS``."""

from torch import nn

from hanme.nn.conv import HANMEConv
from hanme.nn.gat import GAT
from hanme.nn.han import HAN
from hanme.nn.hanme import HANME
from hanme.nn.magna import MAGNA
from hanme.nn.magnn import MAGNN
from hanme.nn.sehgnn import SeHGNN
from hanme.nn.semantic import SemanticAttention

__all__ = [
    "GAT",
    "HAN",
    "HANME",
    "MAGNA",
    "MAGNN",
    "MODELS",
    "HANMEConv",
    "SeHGNN",
    "SemanticAttention",
]

MODELS: dict[str, type[nn.Module]] = {
    "hanme": HANME,
    "han": HAN,
    "gat": GAT,
    "magnn": MAGNN,
    "magna": MAGNA,
    "sehgnn": SeHGNN,
}
