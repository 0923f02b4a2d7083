"""From a prediction back to the metapath instances it looked at."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError
from hanme.nn import HANME


@dataclass(frozen=True)
class Instance:
    """An instance and its part in a prediction.

    Args:
        metapath: Its metapath.
        nodes: The names of its nodes, root first.
        weight: Its share of the node's attention over all metapaths: β times α, mean of the heads.
        hops: How much of its encoding each position makes, mean of the heads; sums to 1.
    """

    metapath: str
    nodes: tuple[str, ...]
    weight: float
    hops: tuple[float, ...]


@dataclass(frozen=True)
class Explanation:
    """Where a model looked to classify one node.

    Args:
        node: Its name.
        probabilities: The probability of each label.
        metapaths: The weight β of each metapath.
        instances: Those it attended to most, first the strongest.
    """

    node: str
    probabilities: dict[str, float]
    metapaths: dict[str, float]
    instances: tuple[Instance, ...]

    def __str__(self) -> str:
        ranked = sorted(self.probabilities.items(), key=lambda item: -item[1])
        lines = [self.node, "  " + ", ".join(f"{label} {p:.0%}" for label, p in ranked)]
        lines += [f"  {beta:6.1%}  {metapath}" for metapath, beta in self.metapaths.items()]
        for instance in self.instances:
            hops = " ".join(f"{hop:.0%}" for hop in instance.hops)
            lines.append(f"  {instance.weight:6.1%}  {' <- '.join(instance.nodes)}  (hops {hops})")
        return "\n".join(lines)


@torch.no_grad()
def explain(model: HANME, data: HeteroData, node: int | str, *, top: int = 5) -> Explanation:
    """The instances to which a model attended most when it classified a node.

    Attention says where the model looked, not yet how far each instance moved the outcome.

    Args:
        model: A trained model.
        data: The graph.
        node: The node of the target type, by number or by name.
        top: How many instances.
    """
    if top < 1:
        raise HanmeError(f"Expected `top` to be at least 1, but got {top}")
    training = model.training
    try:
        return _explain(model.train(False), data, node, top)
    finally:
        model.train(training)


def _explain(model: HANME, data: HeteroData, node: int | str, top: int) -> Explanation:
    store = data[model.target]
    index = _find(list(store.name), node, model.target)
    logits = model(data)[index]
    probabilities = torch.sigmoid(logits) if data.multilabel else torch.softmax(logits, 0)
    x_dict, edge_index_dict = data.x_dict, data.edge_index_dict
    _, betas = model.conv(x_dict, edge_index_dict, return_semantic_attention_weights=True)
    attentions = model.conv.instance_attention(x_dict, edge_index_dict, torch.tensor([index]))
    metapaths = dict(zip(attentions, betas[model.target].tolist(), strict=True))
    found: list[Instance] = []
    for chain, (text, attention) in zip(
        model.conv.chains(x_dict, edge_index_dict), attentions.items(), strict=True
    ):
        weight = metapaths[text] * attention.weight.mean(1)
        share = attention.coefficients.mean(2)
        share = share / share.sum(1, keepdim=True).clamp(min=1e-12)
        types = chain.metapath.node_types
        for p in weight.argsort(descending=True, stable=True)[:top].tolist():
            ids = attention.instances.nodes[p].tolist()
            names = tuple(data[t].name[i] for t, i in zip(types, ids, strict=True))
            found.append(Instance(text, names, float(weight[p]), tuple(share[p].tolist())))
    found.sort(key=lambda instance: -instance.weight)
    return Explanation(
        store.name[index],
        dict(zip(store.label_names, probabilities.tolist(), strict=True)),
        metapaths,
        tuple(found[:top]),
    )


def _find(names: list[str], node: int | str, node_type: str) -> int:
    if not isinstance(node, str):
        if not 0 <= node < len(names):
            raise HanmeError(f"{node_type} {node}: there are {len(names):,}, numbered from 0")
        return operator.index(node)
    found = [i for i, name in enumerate(names) if name == node]
    if len(found) != 1:
        what = f"{len(found)} nodes have that name; say which by number: {found}"
        raise HanmeError(f"{node_type} {node!r}: {what if found else 'no node has that name'}")
    return found[0]
