"""One measurement in a process of its own: seconds and peak memory, as a line of JSON.

    python benchmarks/measure.py CASE BACKEND [--repeat N]

Cases are in ``CASES``. Backends are those of hanme, and two references: ``paper``, eager with dense
features of all node types, the way the paper's code computes it, and ``pyg``, PyG's ``HANConv`` on
the graph that PyG's ``AddMetaPaths`` makes, with dense features.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import hanme  # noqa: F401  before torch, whose threads it keeps from spinning

# isort: split
import torch
from torch import Tensor, nn
from torch_geometric.nn import HANConv
from torch_geometric.transforms import AddMetaPaths

from hanme.common.memory import peak_mb
from hanme.data import load
from hanme.graph import Graph
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.nn import HANME, Batch, HANMEConv, Model
from hanme.training import Trainer, TrainingConfig

MDM, MAM, MKM = "movie-director-movie", "movie-actor-movie", "movie-keyword-movie"
CASES: dict[str, tuple[str, list[str]]] = {
    "paper": ("IMDB", [MDM, MAM]),
    "keywords": ("IMDB", [MDM, MAM, MKM]),
    "MAMAM": ("IMDB", ["movie-actor-movie-actor-movie"]),
    "MKMKM": ("IMDB", ["movie-keyword-movie-keyword-movie"]),
    "APTPA": ("DBLP", ["author-paper-term-paper-author"]),
    "APVPA": ("DBLP", ["author-paper-venue-paper-author"]),
}


def chains(graph: Graph, metapaths: list[str]) -> list[Chain]:
    parsed = [Metapath.parse(text, graph.metadata()) for text in metapaths]
    return [Chain.build(metapath, graph.links, graph.sizes) for metapath in parsed]


class PaperConv(nn.Module):
    """The multihop encoder per instance and position, gathered, as in the paper's code."""

    def __init__(self, graph: Graph, metapaths: list[str], hidden: int, heads: int) -> None:
        super().__init__()
        self.conv = HANMEConv(graph.widths, hidden, graph.metadata(), metapaths, heads=heads)
        # That code projects the features of every node type, those that no metapath touches too.
        self.proj = nn.ModuleDict({t: nn.Linear(n, hidden) for t, n in graph.widths.items()})
        self.paths = chains(graph, metapaths)
        self.nodes = [chain.instances().nodes for chain in self.paths]

    def forward(self, x_dict: dict[str, Tensor]) -> Tensor:
        conv, encoder = self.conv.channels, self.conv.channels.encoder
        shape = (-1, conv.heads, conv.out_channels // conv.heads)
        h = {t: lin(x_dict[t]).view(shape) for t, lin in self.proj.items()}
        zs = []
        for i, (chain, nodes) in enumerate(zip(self.paths, self.nodes, strict=True)):
            types = chain.metapath.node_types
            x = torch.stack([h[t][nodes[:, l]] for l, t in enumerate(types)], 1)  # noqa: E741
            outer = torch.cat([x[:, :1], x[:, :-1]], 1)
            both = torch.cat(
                [
                    torch.einsum("nphd,hde->nphe", outer, encoder.W_h),
                    torch.einsum("nphd,hde->nphe", x, encoder.W_t),
                ],
                -1,
            )
            score = torch.einsum("nphe,he->nph", torch.tanh(both), encoder.v_a)
            a = torch.sigmoid(torch.nn.functional.leaky_relu(score, 0.2))
            a = torch.cat([a[:, :1], a[:, 1:].cumprod(1)], 1)
            decay = encoder.gamma * (1 - encoder.gamma) ** torch.arange(len(types))
            e = (a * decay[:, None]).unsqueeze(-1).mul(x).sum(1)
            s = (h[types[0]] * conv.att_root[i]).sum(-1)[nodes[:, 0]]
            s = s + (e * conv.att_instance[i]).sum(-1)
            s = torch.nn.functional.leaky_relu(s, 0.2)
            index = nodes[:, :1].expand_as(s)
            top = s.new_full((chain.sizes[0], conv.heads), -torch.inf)
            top = top.scatter_reduce(0, index, s.detach(), "amax")
            w = torch.exp(s - top[nodes[:, 0]])
            w = w / torch.zeros_like(top).index_add(0, nodes[:, 0], w)[nodes[:, 0]]
            w = torch.nn.functional.dropout(w, 0.6, self.training)
            z = h[types[0]].new_zeros(chain.sizes[0], *e.shape[1:])
            zs.append(z.index_add(0, nodes[:, 0], w[..., None] * e).relu().flatten(1))
        return self.conv.semantic(zs)


class PyGConv(nn.Module):
    """PyG's own layer on PyG's own metapath graph."""

    def __init__(self, graph: Graph, metapaths: list[str], hidden: int, heads: int) -> None:
        super().__init__()
        steps = [list(Metapath.parse(text, graph.metadata()).steps) for text in metapaths]
        joined = AddMetaPaths(steps, drop_orig_edge_types=True)(graph.to_hetero())
        self.edges = {k: v.flip(0).contiguous() for k, v in joined.edge_index_dict.items()}
        self.target = graph.target
        metadata = ([graph.target], list(self.edges))
        self.conv = HANConv(-1, hidden, metadata=metadata, heads=heads, dropout=0.6)

    def forward(self, x_dict: dict[str, Tensor]) -> Tensor:
        return self.conv({self.target: x_dict[self.target]}, self.edges)[self.target]


class Classifier(Model):
    """A layer and a linear one on top."""

    def __init__(self, conv: nn.Module, hidden: int, labels: int) -> None:
        super().__init__()
        self.conv = conv
        self.lin = nn.Linear(hidden, labels)

    def forward(self, batch: Batch) -> Tensor:
        return self.lin(self.conv(batch.x_dict))


def build(backend: str, graph: Graph, metapaths: list[str], hidden: int, heads: int) -> Any:
    labels = len(graph.labels)
    if backend in ("paper", "pyg"):
        for nodes in graph.nodes.values():
            nodes.x = nodes.x.to_dense()
        reference = PaperConv if backend == "paper" else PyGConv
        return Classifier(reference(graph, metapaths, hidden, heads), hidden, labels)
    return HANME(
        graph.metadata(), graph.target, metapaths, labels,
        hidden_channels=hidden, heads=heads, backend=backend,
    )  # fmt: skip


def timed(function: Callable[[], object], repeat: int) -> float:
    """The best of some repetitions: the one least disturbed by whatever else the machine does."""
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("backend")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    name, metapaths = CASES[arguments.case]
    graph = load(name)
    trainer = Trainer(
        build(arguments.backend, graph, metapaths, 128, 8), graph, TrainingConfig(recipe="paper")
    )
    if arguments.repeat > 1:
        trainer.step()  # warm: compiled code loaded, structures made
    train = timed(lambda: trainer._epoch(1), arguments.repeat)
    evaluate = timed(trainer.logits, arguments.repeat)
    instances = sum(int(chain.count().sum()) for chain in chains(graph, metapaths))
    print(
        json.dumps(
            {
                "case": arguments.case,
                "backend": arguments.backend,
                "instances": instances,
                "repeat": arguments.repeat,
                "train": train,
                "evaluate": evaluate,
                "peak_mb": peak_mb(),
                "threads": torch.get_num_threads(),
            }
        )
    )


if __name__ == "__main__":
    main()
