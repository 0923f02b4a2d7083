"""Stacking: a weighted sum of the logits of several learners."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hanme.common import device, ranks
from hanme.errors import HanmeError
from hanme.graph import Graph, Subgraph
from hanme.graph.metapath import Walk
from hanme.linear import Column, Contributions, Learner, LinearModel, Smoothing, Trees
from hanme.nn.model import ChannelModel, Model, needs_subgraph
from hanme.training.batches import SHARED, logits_of, stands_alone


class Network:
    """A trained network as a part of a stacked model.

    Args:
        model: The network.
        batch_size: Number of nodes to compute at a time (default: the whole graph at once).
    """

    def __init__(self, model: Model, batch_size: int | None = None) -> None:
        self.model, self.batch_size = model, batch_size

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        size = self.batch_size
        if ranks.count() > 1 or (nodes is not None and needs_subgraph(self.model, graph)):
            size = size or SHARED
        self.model.to(device.chosen())
        batch_size = size if stands_alone(self.model) else None
        logits = logits_of(self.model, graph, nodes, batch_size=batch_size)
        self.model.to(torch.device("cpu"))
        return logits.float().cpu()

    def embed(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return what the head of the network reads, ``[n, H]``; see :meth:`predict`."""
        model = self.model
        if not isinstance(model, ChannelModel):
            raise HanmeError(
                f"model {type(model).__name__}: no embeddings, since its last layer reads the "
                "graph; models of channels such as hanme, han, magnn and sehgnn have them"
            )
        headless = ChannelModel(model.target, model.parts, model.fusion, nn.Identity())
        return Network(headless, self.batch_size).predict(graph, nodes)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the weights of the network."""
        return {"kind": "network"}, dict(self.model.state_dict())


class Stacked:
    """The weighted sum Σ slope · logits + bias of learners, fitted apart from each other.

    Args:
        parts: The learners by name; at most one is a network.
        slopes: The factor of each learner's logits (default: all 1).
        bias: ``[C]`` (default: 0).
    """

    def __init__(
        self,
        parts: Mapping[str, Learner | Network],
        slopes: Mapping[str, float] | None = None,
        bias: Tensor | None = None,
    ) -> None:
        self.parts = dict(parts)
        self.slopes = dict(slopes or dict.fromkeys(parts, 1.0))
        self.bias = torch.zeros(()) if bias is None else bias

    @classmethod
    def of(cls, model: Model | Stacked) -> Stacked:
        """Return a network as a stacked model of itself; others as they are."""
        return model if isinstance(model, Stacked) else cls({"network": Network(model)})

    @property
    def network(self) -> Model | None:
        """The network among the parts."""
        networks = [part.model for part in self.parts.values() if isinstance(part, Network)]
        return networks[0] if networks else None

    @property
    def num_parameters(self) -> int:
        """The number of learnt weights of network and linear model, without their statistics."""
        weights: list[Tensor] = [] if self.network is None else [*self.network.parameters()]
        for part in self.learners.values():
            found = {k: x for k, x in part.state()[1].items() if "idf" not in k.split(".")}
            weights += [x for x in found.values() if x.is_floating_point()]  # trees are bytes
        return sum(weight.numel() for weight in weights)

    @property
    def learners(self) -> dict[str, Learner]:
        """The parts that are no network."""
        return {k: part for k, part in self.parts.items() if not isinstance(part, Network)}

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        total: Tensor = self.bias
        for name, part in self.parts.items():
            total = total + self.slopes[name] * part.predict(graph, nodes)
        return total

    def embed(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the network's embeddings of some target nodes (default: all), ``[n, H]``."""
        networks = [part for part in self.parts.values() if isinstance(part, Network)]
        if not networks:
            raise HanmeError(
                f"embeddings are those of a network, but the model consists of "
                f"{', '.join(self.parts)}; "
                "train with model='hanme' and training={'recipe': 'paper'} to keep its network"
            )
        return networks[0].embed(graph, nodes)

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block of the learners but the network adds, ``[n, C]`` by name."""
        total: dict[str, Tensor] = {}
        for name, part in self.learners.items():
            for block, logits in part.block_logits(graph, nodes).items():
                total[block] = total.get(block, 0) + self.slopes[name] * logits
        if total:
            total["bias"] = total["bias"] + self.bias
        return total

    def contributions(
        self, graph: Graph, node: int, missing: Collection[Column] = ()
    ) -> Contributions:
        """Return what neighbours, aggregates and own features add, but for the network."""
        total = Contributions(self.bias.double().numpy() + np.zeros(len(graph.labels)))
        for name, part in self.learners.items():
            total = total + self.slopes[name] * part.contributions(graph, node, missing)
        return total

    def walks(self) -> list[Walk]:
        """Return the walks of the learners but the network."""
        return [walk for part in self.learners.values() for walk in part.walks()]

    def samples(self) -> dict[Walk, int]:
        """Return the walks whose instances the network samples."""
        return {} if self.network is None else self.network.samples()

    def needs_subgraph(self, graph: Graph) -> bool:
        """Return whether some nodes are computed on the subgraph that they reach."""
        if self.network is None:
            return graph.stored
        return needs_subgraph(self.network, graph)

    def subgraph(self, graph: Graph, nodes: Tensor) -> Subgraph:
        """Return the subgraph that the model reads for some target nodes."""
        walks = self.walks()
        if self.network is not None:
            own = self.network.walks()
            if own is None:
                raise HanmeError(f"model {type(self.network).__name__}: it reads the whole graph")
            walks += own
        return graph.subgraph(nodes, walks, self.samples() or None)

    def scaled(self, factor: float, shift: Tensor) -> Stacked:
        """Return the stack whose logits are ``factor`` times its own plus ``shift``, ``[C]``."""
        slopes = {name: factor * slope for name, slope in self.slopes.items()}
        return Stacked(self.parts, slopes, factor * self.bias + shift)

    def aligned_to(self, graph: Graph) -> Stacked:
        """Return the model with the weights of ids in the order of a graph's nodes."""
        parts = {name: part.aligned_to(graph) for name, part in self.learners.items()}
        return Stacked({**self.parts, **parts}, self.slopes, self.bias)

    def frozen(self, graph: Graph) -> Stacked:
        """Return the model for subgraphs of a graph; the predictions of neighbours are held."""
        parts = {name: part.frozen(graph) for name, part in self.learners.items()}
        return Stacked({**self.parts, **parts}, self.slopes, self.bias)

    def grown(self, graph: Graph, new: Tensor) -> Stacked:
        """Return a frozen model for subgraphs of a graph with ``new`` nodes, the last ones."""
        parts = {
            name: part.grown(graph, new) if isinstance(part, Smoothing) else part
            for name, part in self.parts.items()
        }
        return Stacked(parts, self.slopes, self.bias)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what to save: values for JSON, and tensors named by part."""
        values: dict[str, Any] = {}
        tensors: dict[str, Tensor] = {}
        for name, part in self.parts.items():
            values[name], mine = part.state()
            tensors |= {f"{name}.{key}": value.contiguous() for key, value in mine.items()}
        spec = {"parts": values, "slopes": self.slopes, "bias": self.bias.tolist()}
        return {"kind": "stacked"} | spec, tensors


def load_learner(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], graph: Graph, network: Network | None
) -> Learner | Network:
    """Restore a learner from the values and tensors of its ``state``, aligned to a graph.

    ``network`` is the network with its weights, if the model has one.
    """
    kind, own = values.get("kind"), {k: v for k, v in values.items() if k != "kind"}
    try:
        if kind == "linear":
            return LinearModel.from_state(own, tensors, graph)
        if kind == "trees":
            return Trees.from_state(own, tensors)
        if kind == "smoothing":
            base = load_learner(own.pop("base"), tensors, graph, network)
            if not isinstance(base, Network):
                return Smoothing.from_state(own, base, graph)
        if kind == "stacked" and own["parts"].keys() == own["slopes"].keys():
            parts = {}
            for name, part in own["parts"].items():
                start = f"{name}."
                mine = {k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)}
                parts[name] = load_learner(part, mine, graph, network)
            return Stacked(parts, own["slopes"], torch.tensor(own["bias"]))
        if kind == "network" and network is not None:
            return network
    except (KeyError, TypeError, AttributeError):
        raise HanmeError(f"{kind} model: its specification or its weights are incomplete") from None
    raise HanmeError(f"{kind!r}: not a learner, or one whose parts are incomplete")
