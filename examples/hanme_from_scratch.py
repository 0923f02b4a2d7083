"""HAN-ME on one page: the paper's equations in plain PyTorch, in the order of the paper.

Paper: "Attention-Driven Metapath Encoding in Heterogeneous Graphs", https://arxiv.org/abs/2412.20678
Run:   python examples/hanme_from_scratch.py      (about a minute on one core)

A movie's genre often shows in the movies it shares people with. HAN follows the metapath
Φ = movie-actor-movie to those movies and ignores the actor in between. HAN-ME encodes the whole
*instance* p = (v0, v1, v2) of Φ: this movie, that actor, the other movie. Its layers are

    x  --M-->  h  --encoder-->  e(p)  --softmax over p-->  z^Φ  --softmax over Φ-->  Z  -->  logits

Shapes: N nodes of a type, P instances of a metapath with L hops, K attention heads of D channels.

On the embedded graph, seeing the person in between is worth 20 points of F1; which encoder sees it
matters less. This page favours clarity: it lists all P instances and gathers their features. The
package computes the same numbers without a list (docs/design.md), and is tested against this page.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.data import planted  # the embedded data set; everything else is on this page

Metapath = tuple[str, ...]  # node types: ("movie", "actor", "movie")
Links = dict[tuple[str, str], Tensor]  # [2, E] per pair of node types
Encoder = Callable[[Tensor], Tensor]  # [P, L + 1, K, D] -> [P, K, D]


# --- 1. Metapath instances, with all nodes in between ------------------------------------------


def list_instances(metapath: Metapath, links: Links) -> Tensor:
    """Return every instance p = (v0, ..., vL) of a metapath, ``[P, L + 1]``."""
    first, *later = [links[pair] for pair in pairwise(metapath)]
    instances = first.t()
    for source, target in later:  # join: an instance continues along every link of its last node
        row, link = (instances[:, -1:] == source).nonzero(as_tuple=True)
        instances = torch.cat([instances[row], target[link, None]], dim=1)
    return instances


# --- 2. Encoders: one vector e(p) per instance and head ----------------------------------------
# From features along an instance, h [P, L + 1, K, D], to e [P, K, D]. All metapaths share weights.


def glorot(*shape: int) -> nn.Parameter:
    """Return a weight drawn uniformly with variance 2 / (fan_in + fan_out)."""
    bound = math.sqrt(6 / (shape[-2] + shape[-1]))
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


class Multihop(nn.Module):
    """Attention along the instance: each node counts as much as all links up to it allow.

    e(p) = γ a(v0,v0) h_v0  +  Σ_{i=1..L} γ (1-γ)^i (Π_{j=1..i} a(v_{j-1}, v_j)) h_vi
    a(u,w) = σ(LeakyReLU(v_a · tanh[h_u W_h ‖ h_w W_t]))
    """

    def __init__(self, heads: int, channels: int, gamma: float = 0.4) -> None:
        super().__init__()
        self.gamma = gamma
        self.W_h = glorot(heads, channels, channels)
        self.W_t = glorot(heads, channels, channels)
        self.v_a = glorot(heads, 2 * channels)

    def attention(self, h_u: Tensor, h_w: Tensor) -> Tensor:
        """Return a(u, w) of each instance and head, ``[P, K]``."""
        head = torch.einsum("pkd,kde->pke", h_u, self.W_h)
        tail = torch.einsum("pkd,kde->pke", h_w, self.W_t)
        score = (self.v_a * torch.tanh(torch.cat([head, tail], dim=-1))).sum(-1)
        return torch.sigmoid(F.leaky_relu(score, 0.2))

    def forward(self, h: Tensor) -> Tensor:
        h = h.unbind(1)  # one [P, K, D] per position
        e = self.gamma * self.attention(h[0], h[0])[..., None] * h[0]
        weight = self.gamma
        for i in range(1, len(h)):
            weight = weight * (1 - self.gamma) * self.attention(h[i - 1], h[i])
            e = e + weight[..., None] * h[i]
        return e

    def diffusion(self, h: Tensor) -> Tensor:
        """Return e(p) by Theorem 1: MAGNA's attention diffusion on the chain v0 <- v1 <- ... <- vL.

        The attention matrix of the chain, A[i, i+1] = a(v_i, v_{i+1}), is nilpotent, A^{L+1} = 0.
        So the diffusion Σ_m γ (1-γ)^m A^m ends after L hops, and it is a geometric series,
        γ (I - (1-γ) A)^{-1}. Its first row is what reaches the root: γ (1-γ)^i Π_j a(v_{j-1}, v_j).
        The paper also weighs the root itself, by a(v0, v0), where the series has A^0 = 1.
        """
        instances, length, heads, _ = h.shape
        A = h.new_zeros(instances, heads, length, length)
        for i in range(length - 1):
            A[:, :, i, i + 1] = self.attention(h[:, i], h[:, i + 1])
        series = self.gamma * torch.linalg.inv(torch.eye(length).to(h) - (1 - self.gamma) * A)
        first_row = series[:, :, 0].clone()
        first_row[:, :, 0] *= self.attention(h[:, 0], h[:, 0])
        return torch.einsum("pki,pikd->pkd", first_row, h)


class Direct(nn.Module):
    """Attention from the root to every node of the instance at once.

    e(p) = Σ_{i=0..L} σ(<q, k_i> / √D) h_vi   with   q = h_v0 W_t,  k_i = h_vi W_h
    """

    def __init__(self, heads: int, channels: int) -> None:
        super().__init__()
        self.W_h = glorot(heads, channels, channels)
        self.W_t = glorot(heads, channels, channels)

    def forward(self, h: Tensor) -> Tensor:
        q = torch.einsum("pkd,kde->pke", h[:, 0], self.W_t)
        k = torch.einsum("pikd,kde->pike", h, self.W_h)
        alpha = torch.sigmoid(torch.einsum("pke,pike->pik", q, k) / math.sqrt(q.size(-1)))
        return (alpha[..., None] * h).sum(1)


def mean(h: Tensor) -> Tensor:
    """MAGNN's mean encoder, for comparison: e(p) = 1/(L+1) Σ_i h_vi."""
    return h.mean(1)


def end(h: Tensor) -> Tensor:
    """HAN, for comparison: e(p) = h_vL, blind to the nodes in between."""
    return h[:, -1]


# --- 3. The model: node-level attention over instances, semantic attention over metapaths -------


class HANME(nn.Module):
    """Compute a logit per target node and label, ``[N, labels]``."""

    def __init__(
        self,
        sizes: dict[str, int],  # number of features of each node type
        metapaths: list[Metapath],  # each starts at the target type
        labels: int,
        encoder: Encoder,
        heads: int = 4,  # K
        channels: int = 8,  # D
        dropout: float = 0.3,  # of the instances' weights, in training
    ) -> None:
        super().__init__()
        hidden = heads * channels
        self.metapaths, self.encoder, self.heads, self.dropout = metapaths, encoder, heads, dropout
        self.M = nn.ModuleDict({t: nn.Linear(size, hidden) for t, size in sizes.items()})
        self.a = nn.ParameterList(glorot(heads, 2 * channels) for _ in metapaths)
        self.W = nn.Linear(hidden, hidden)
        self.q = glorot(1, hidden)
        self.head = nn.Linear(hidden, labels)

    def forward(self, x: dict[str, Tensor], instances: list[Tensor]) -> Tensor:
        # Projection: h_v = M_type x_v, split into heads.
        h = {t: M(x[t]).unflatten(1, (self.heads, -1)) for t, M in self.M.items()}
        along = zip(self.metapaths, instances, self.a, strict=True)
        z = torch.stack([self.node_level(h, *Φ) for Φ in along])
        return self.head(self.semantic_level(z))

    def node_level(self, h: dict[str, Tensor], metapath: Metapath, p: Tensor, a: Tensor) -> Tensor:
        """Return z^Φ of each root, ``[N, K · D]``.

        α(p) = softmax over the root's instances of LeakyReLU(a_Φ · [h_v0 ‖ e(p)])
        z^Φ  = ReLU(Σ_p α(p) e(p)), heads side by side
        """
        along = torch.stack([h[t][v] for t, v in zip(metapath, p.t(), strict=True)], dim=1)
        e, root = self.encoder(along), p[:, 0]
        score = F.leaky_relu((a * torch.cat([along[:, 0], e], dim=-1)).sum(-1), 0.2)
        weight = torch.exp(score - score.amax(0))
        roots = h[metapath[0]]
        total = torch.zeros_like(roots[..., 0]).index_add(0, root, weight)
        alpha = F.dropout(weight / total[root], self.dropout, self.training)
        z = torch.zeros_like(roots).index_add(0, root, alpha[..., None] * e)
        return F.relu(z).flatten(1)

    def semantic_level(self, z: Tensor) -> Tensor:
        """Return Z = Σ_Φ β_Φ z^Φ, ``[N, K · D]``, from ``[metapaths, N, K · D]``.

        β = softmax over Φ of the mean over nodes of q · tanh(W z^Φ + b)
        """
        w = (self.q * torch.tanh(self.W(z))).sum(-1).mean(1)
        return torch.einsum("m,mnc->nc", torch.softmax(w, dim=0), z)


# --- 4. Training: binary cross-entropy and the loss-aware schedule (LTS) ------------------------


def easiest(losses: Tensor, epoch: int, start: float = 0.1, until: int = 50) -> Tensor:
    """Return which nodes LTS trains on: the share λ_t with the smallest loss.

    λ_t = λ_0 + (1 - λ_0) t / T, then 1. The hard nodes, often mislabelled, come last.
    """
    share = min(1.0, start + (1 - start) * epoch / until)
    return torch.argsort(losses.detach(), stable=True)[: max(1, math.ceil(share * len(losses)))]


def f1(predicted: Tensor, true: Tensor) -> tuple[float, float]:
    """Return micro and macro F1 in percent, from bool matrices ``[n, labels]``."""
    hits, total = (predicted & true).sum(0), predicted.sum(0) + true.sum(0)
    return float(200 * hits.sum() / total.sum()), float((200 * hits / total.clamp(min=1)).mean())


def train(encoder: Encoder, *, lts: bool = False, epochs: int = 100) -> tuple[float, float]:
    """Train on the planted graph; return test F1 at the epoch of the best validation F1."""
    graph = planted()
    x = {t: nodes.x.to_dense() for t, nodes in graph.nodes.items()}
    links = {(source, target): ends for (source, _, target), ends in graph.links.items()}
    metapaths = [("movie", "director", "movie"), ("movie", "actor", "movie")]
    instances = [list_instances(metapath, links) for metapath in metapaths]
    sizes = {t: x[t].size(1) for t in ("movie", "director", "actor")}
    model = HANME(sizes, metapaths, len(graph.labels), encoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=0.001)
    y, best, scores = graph.y[graph.split.train], 0.0, (0.0, 0.0)
    for epoch in range(1, epochs + 1):
        model.train()
        logits = model(x, instances)[graph.split.train]
        losses = F.binary_cross_entropy_with_logits(logits, y, reduction="none").mean(1)
        loss = losses[easiest(losses, epoch)].mean() if lts else losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            predicted, true = model(x, instances) > 0, graph.y > 0
        validation = sum(f1(predicted[graph.split.val], true[graph.split.val]))
        if validation > best:
            best, scores = validation, f1(predicted[graph.split.test], true[graph.split.test])
    return scores


if __name__ == "__main__":
    torch.manual_seed(0)
    multihop, h = Multihop(4, 8), torch.randn(5, 4, 4, 8)  # 5 instances of 3 hops
    torch.testing.assert_close(multihop(h), multihop.diffusion(h))  # Theorem 1
    print("test movies, F1 in percent          micro  macro")
    for name, encoder, lts in (
        ("HAN: ends only", end, False),
        ("MAGNN: mean", mean, False),
        ("HAN-ME: direct", Direct(4, 8), False),
        ("HAN-ME: multihop", multihop, False),
        ("HAN-ME: multihop, with LTS", Multihop(4, 8), True),
    ):
        micro, macro = train(encoder, lts=lts)
        print(f"{name:<34} {micro:6.1f} {macro:6.1f}", flush=True)
