"""MAGNA's diffusion against its closed form, with dense matrices."""

import torch
import torch.nn.functional as F

from hanme.data import planted
from hanme.nn import MAGNA
from hanme.nn.batch import Batch
from hanme.nn.magna import Diffusion, Edges, diffuse

NODES, HEADS, SIZE = 7, 2, 3


def edges() -> Edges:
    generator = torch.Generator().manual_seed(0)
    links = torch.randint(NODES, (2, 20), generator=generator)  # some of them twice
    links = torch.cat([links, torch.arange(NODES).expand(2, -1)], 1)
    return Edges.of(links, torch.randint(3, (27,), generator=generator), NODES)


def dense(weight: torch.Tensor, e: Edges) -> torch.Tensor:
    """A by head: a row looks at those that lead to it."""
    matrix = torch.zeros(HEADS, NODES, NODES, dtype=weight.dtype)
    for k in range(HEADS):
        matrix[k].index_put_((e.end, e.start), weight[:, k], accumulate=True)
    return matrix


def test_many_hops_are_the_closed_form() -> None:
    torch.manual_seed(1)
    layer = Diffusion(HEADS * SIZE, HEADS, 3, 300, 0.15, 0.0, 0.2).double().eval()
    h = torch.randn(NODES, HEADS * SIZE, dtype=torch.double)
    e = edges()
    norm = F.layer_norm(h, h.shape[1:])
    z0 = (norm @ layer.lin.weight.t()).view(NODES, HEADS, SIZE)
    W_h = layer.W_h.weight.view(HEADS, SIZE, -1)
    W_t = layer.W_t.weight.view(HEADS, SIZE, -1)
    heads = []
    for k in range(HEADS):
        # v · tanh([W_h h_i ‖ W_t h_j ‖ r]), softmax over the links that lead to i.
        scores = torch.stack(
            [
                layer.v[:, k].flatten()
                @ torch.tanh(torch.cat([W_h[k] @ norm[i], W_t[k] @ norm[j], layer.r[kind, k]]))
                for i, j, kind in zip(e.end, e.start, e.kind, strict=True)
            ]
        )
        exp = F.leaky_relu(scores, 0.2).exp()
        matrix = torch.zeros(NODES, NODES, dtype=torch.double)
        matrix.index_put_((e.end, e.start), exp, accumulate=True)
        matrix = matrix / matrix.sum(1, keepdim=True)
        inverse = torch.linalg.inv(torch.eye(NODES) - 0.85 * matrix)
        heads.append(0.15 * inverse @ z0[:, k])
    torch.testing.assert_close(layer(h, e), torch.cat(heads, 1) @ layer.W_o.weight.t())


def test_a_few_hops_are_the_finite_sum_and_have_its_gradient() -> None:
    torch.manual_seed(2)
    e = edges()
    weight = torch.rand(27, HEADS, dtype=torch.double, requires_grad=True)
    z0 = torch.randn(NODES, HEADS, SIZE, dtype=torch.double, requires_grad=True)
    matrix, z = dense(weight, e), z0.transpose(0, 1)
    for _ in range(3):
        z = 0.9 * matrix @ z + 0.1 * z0.transpose(0, 1)
    torch.testing.assert_close(diffuse(weight, z0, e, 3, 0.1), z.transpose(0, 1))
    assert torch.autograd.gradcheck(lambda w, z: diffuse(w, z, e, 3, 0.1), (weight, z0))
    assert torch.autograd.gradgradcheck(lambda w, z: diffuse(w, z, e, 3, 0.1), (weight, z0))


def test_a_link_s_relation_counts() -> None:
    graph = planted(movies=20)
    batch = Batch.of(graph)
    sizes = {"hidden_channels": 8, "heads": 2, "layers": 1}
    model = MAGNA(graph.metadata(), "movie", 5, **sizes).eval()
    before = model(batch)
    with torch.no_grad():
        model.attention[0].r[0] += 1
    assert not torch.equal(before, model(batch))


def test_attention_sums_to_one_over_the_links_into_a_node() -> None:
    layer, e = Diffusion(HEADS * SIZE, HEADS, 3, 2, 0.1, 0.0, 0.2), edges()
    weight = layer.weight(torch.randn(NODES, HEADS * SIZE), e)
    torch.testing.assert_close(dense(weight, e).sum(-1), torch.ones(HEADS, NODES))


def test_more_links_than_pairs_of_nodes_have_a_gradient() -> None:
    e = Edges.of(torch.zeros(2, 3, dtype=torch.long), torch.zeros(3, dtype=torch.long), 1)
    weight = torch.rand(3, HEADS, dtype=torch.double, requires_grad=True)
    z0 = torch.randn(1, HEADS, SIZE, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w, z: diffuse(w, z, e, 2, 0.1), (weight, z0))
