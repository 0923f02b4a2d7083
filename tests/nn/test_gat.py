"""GAT against dense attention on PyG's own homogeneous graph, its layer against PyG's."""

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv

from hanme.data import planted
from hanme.nn import GAT
from hanme.nn.batch import Batch
from hanme.nn.gat import Conv, chain_of
from hanme.nn.homogeneous import Links


@pytest.mark.parametrize("residual", [False, True])
def test_is_dense_attention_on_the_homogeneous_graph(residual: bool) -> None:
    graph = planted(movies=30)
    batch = Batch.of(graph)
    model = GAT(
        graph.metadata(), "movie", 5, hidden_channels=8, heads=2, layers=2, residual=residual
    )
    model.eval()
    with torch.no_grad():
        found = model(batch)  # sizes are known from here on
        for conv in model.convs:
            conv.bias.uniform_(-1, 1)
        found = model(batch)
    one = graph.to_hetero().to_homogeneous(node_attrs=[])
    first = graph.node_types.index("movie")
    proj = model.graph.proj
    h = torch.cat(
        [F.linear(x.to_dense(), proj[t].weight, proj[t].bias) for t, x in graph.x_dict.items()]
    )
    linked = torch.eye(one.num_nodes, dtype=torch.bool)
    linked[one.edge_index[1], one.edge_index[0]] = True  # a row looks at those that lead to it
    for i, conv in enumerate(model.convs):
        before = F.elu(h) if i else h
        heads = []
        for k in range(conv.heads):
            rows = slice(k * conv.att_src.size(-1), (k + 1) * conv.att_src.size(-1))
            z = before @ conv.lin.weight[rows].t()
            score = (z @ conv.att_dst[0, k])[:, None] + (z @ conv.att_src[0, k])[None]
            score = F.leaky_relu(score, 0.05).masked_fill(~linked, -torch.inf)
            heads.append(torch.softmax(score, 1) @ z)
        h = torch.cat(heads, 1) + conv.bias
        if residual and i:
            h = h + before @ conv.res.weight.t()
    movies = h[one.node_type == first]
    torch.testing.assert_close(found, movies, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("residual", [False, True])
def test_a_layer_is_pyg_s(residual: bool) -> None:
    # A node without links, links that are there twice, and loops that are there already.
    edge_index = torch.tensor([[0, 1, 2, 2, 3, 3, 4, 5], [1, 0, 1, 1, 2, 3, 1, 5]])
    ours = Conv(4, 3, 2, 0.05, 0.0, residual).double()
    theirs = GATConv(4, 3, 2, residual=residual, negative_slope=0.05, dropout=0.0).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(7, 4, dtype=torch.double, requires_grad=True)
    links = Links(edge_index, torch.zeros(8), (0, 7), slice(0, 7))
    outs = [ours(x, chain_of(links)), theirs(x, edge_index)]
    torch.testing.assert_close(*outs)
    weight = torch.randn_like(outs[0])
    grads = [
        torch.autograd.grad((out * weight).sum(), [x, *layer.parameters()])
        for out, layer in zip(outs, (ours, theirs), strict=True)
    ]
    torch.testing.assert_close(*grads)
