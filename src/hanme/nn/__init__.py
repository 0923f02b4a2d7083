"""Models and their parts. A new model is one file here and one line in ``MODELS``."""

from collections.abc import Callable

from hanme.common.registry import Registry
from hanme.nn.batch import Batch
from hanme.nn.channels import CHANNELS, Channels, Task
from hanme.nn.encoders import ENCODERS, Encoder, PathEncoder
from hanme.nn.fusions import FUSIONS, Fusion, SemanticAttention
from hanme.nn.gat import GAT
from hanme.nn.hanme import HAN, HANME, MAGNN, HANMEConv
from hanme.nn.magna import MAGNA
from hanme.nn.model import ChannelModel, Model
from hanme.nn.sehgnn import SeHGNN

__all__ = [
    "CHANNELS",
    "ENCODERS",
    "FUSIONS",
    "GAT",
    "HAN",
    "HANME",
    "MAGNA",
    "MAGNN",
    "MODELS",
    "Batch",
    "ChannelModel",
    "Channels",
    "Encoder",
    "Fusion",
    "HANMEConv",
    "Model",
    "PathEncoder",
    "SeHGNN",
    "SemanticAttention",
    "Task",
]

MODELS: Registry[Callable[..., Model]] = Registry(
    "model",
    Model,
    {"hanme": HANME, "han": HAN, "gat": GAT, "magnn": MAGNN, "magna": MAGNA, "sehgnn": SeHGNN},
)
