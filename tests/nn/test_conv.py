"""The layer and the models, against PyG's HANConv and against each other."""

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import HANConv
from torch_geometric.transforms import AddMetaPaths

from hanme.errors import HanmeError
from hanme.nn import GAT, HAN, HANME, HANMEConv, SemanticAttention
from hanme.nn.encoders import Multihop
from hanme.nn.projection import Projection
from hanme.ops import BACKENDS

METAPATHS = ["m-a-m", "m-d-m"]


def small_graph(seed: int = 0) -> HeteroData:
    """Movies, actors and directors; the last movie is linked to nothing."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for node_type, size, width in (("m", 12, 7), ("a", 9, 5), ("d", 4, 6)):
        data[node_type].x = torch.randn(size, width, generator=generator)
    for other, size in (("a", 9), ("d", 4)):
        movies = torch.randint(0, 11, (25,), generator=generator)
        others = torch.randint(0, size, (25,), generator=generator)
        links = torch.stack([movies, others]).unique(dim=1).contiguous()  # PyG keeps twins apart
        data["m", "to", other].edge_index = links
        data[other, "to", "m"].edge_index = links.flip(0)
    return data


def test_han_equals_pyg_hanconv_with_the_same_weights() -> None:
    data = small_graph()
    model = HAN(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    model(data)
    with_metapaths = AddMetaPaths(
        [[("m", "a"), ("a", "m")], [("m", "d"), ("d", "m")]], drop_orig_edge_types=True
    )(data.clone())
    theirs = HANConv(-1, 8, metadata=with_metapaths.metadata(), heads=2, dropout=0.6).eval()
    # PyG's messages flow along an edge; ours come back along the path from its root.
    edges = {e: index.flip(0) for e, index in with_metapaths.edge_index_dict.items()}
    theirs(with_metapaths.x_dict, edges)
    ours = model.conv
    with torch.no_grad():
        theirs.proj["m"].weight.copy_(ours.proj["m"].weight)
        theirs.proj["m"].bias.copy_(ours.proj["m"].bias)
        for i in range(2):
            key = f"m__metapath_{i}__m"
            theirs.lin_src[key].copy_(ours.att_instance[i])
            theirs.lin_dst[key].copy_(ours.att_root[i])
        theirs.k_lin.load_state_dict(ours.semantic.k_lin.state_dict())
        theirs.q.copy_(ours.semantic.q)
    expected, expected_beta = theirs(
        with_metapaths.x_dict, edges, return_semantic_attention_weights=True
    )
    out, beta = ours(data.x_dict, data.edge_index_dict, return_semantic_attention_weights=True)
    torch.testing.assert_close(out["m"], expected["m"])
    torch.testing.assert_close(beta["m"], expected_beta["m"])


@pytest.mark.parametrize("encoder", ["multihop", "direct", "mean", "linear", "rotate", "end"])
def test_backends_give_the_same_output_and_gradients(encoder: str) -> None:
    data = small_graph()
    results = {}
    for backend in BACKENDS:
        torch.manual_seed(1)
        model = HANME(
            data.metadata(),
            "m",
            METAPATHS,
            3,
            hidden_channels=8,
            heads=2,
            encoder=encoder,
            backend=backend,
        )
        model(data)
        torch.manual_seed(2)
        model.reset_parameters()
        out = model.train()(data)  # with dropout: all backends see the same draw
        out.square().sum().backward()
        results[backend] = [out, *(p.grad for p in model.parameters())]
    reference = results.pop("eager")
    for result in results.values():
        for ours, expected in zip(result, reference, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_sparse_features_are_dense_ones_stored_otherwise() -> None:
    data = small_graph()
    sparse = data.clone()
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.relu()
        sparse[node_type].x = data[node_type].x.to_sparse_csr()
    model = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    grads = []
    for graph in (data, sparse):
        out = model(graph)
        model.zero_grad()
        out.square().sum().backward()
        grads.append([out, *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_projection_gradcheck_with_sparse_features() -> None:
    x = torch.randn(5, 4, dtype=torch.double).relu().to_sparse_csr()
    layer = Projection(4, 3).double()

    def run(weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(run, (layer.weight, layer.bias))


def test_only_types_that_metapaths_touch_are_projected() -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m"], heads=2)
    assert list(conv.proj) == ["m", "a"]
    assert list(HANMEConv(-1, 8, data.metadata(), ["m-a-m"], encoder="end").proj) == ["m"]


@pytest.mark.parametrize("name", ["items", "training", "to", "a.b"])
@pytest.mark.parametrize("model", [HANME, GAT])
def test_types_may_be_called_anything(name: str, model: type) -> None:
    data = HeteroData()
    for kind in ("paper", name):
        data[kind].x = torch.ones(3, 2)
    links = torch.tensor([[0, 1, 2], [0, 0, 1]])
    data["paper", "by", name].edge_index = links
    data[name, "of", "paper"].edge_index = links.flip(0)
    metapaths = [[f"paper-{name}-paper"]] if model is HANME else []
    net = model(data.metadata(), "paper", *metapaths, 2, hidden_channels=4, heads=2)
    net(data).sum().backward()

    assert all(weight.grad is not None for weight in net.parameters())


def test_metapaths_may_start_at_several_types() -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m", "a-m-a", "a-m"], heads=2)
    out, beta = conv(data.x_dict, data.edge_index_dict, return_semantic_attention_weights=True)
    assert {t: tuple(z.shape) for t, z in out.items()} == {"m": (12, 8), "a": (9, 8)}
    assert {t: tuple(b.shape) for t, b in beta.items()} == {"m": (1,), "a": (2,)}


def test_another_graph_and_a_changed_one_are_noticed() -> None:
    data, other = small_graph(), small_graph(seed=5)
    model = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    first = model(data)
    assert not torch.allclose(model(other), first)
    torch.testing.assert_close(model(data), first)
    chains = model.conv.chains(data.x_dict, data.edge_index_dict)
    assert model.conv.chains(data.x_dict, data.edge_index_dict) is chains
    data["m", "to", "a"].edge_index[1] = 0
    assert not torch.allclose(model(data), first)


def test_attention_weights_at_both_levels() -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), METAPATHS, heads=2).eval()
    _, beta = conv(data.x_dict, data.edge_index_dict, return_semantic_attention_weights=True)
    torch.testing.assert_close(beta["m"].sum(), torch.tensor(1.0))
    attention = conv.instance_attention(data.x_dict, data.edge_index_dict, torch.tensor([3]))
    assert list(attention) == METAPATHS
    for found in attention.values():
        assert set(found.instances.nodes[:, 0].tolist()) <= {3}
        if len(found.instances):
            torch.testing.assert_close(found.weight.sum(0), torch.ones(2))


def test_repr_and_reset() -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), METAPATHS, heads=2)
    assert repr(conv).startswith("HANMEConv(8, heads=2, encoder=Multihop(")
    assert "m-a-m, m-d-m" in repr(conv)
    conv(data.x_dict, data.edge_index_dict)
    before = conv.proj["m"].weight.clone()
    conv.reset_parameters()
    assert not torch.equal(before, conv.proj["m"].weight)


def test_semantic_attention_of_one_metapath_is_that_metapath() -> None:
    z = torch.randn(5, 4)
    out, beta = SemanticAttention(4)([z])
    torch.testing.assert_close(out, z)
    assert beta.tolist() == [1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_channels": 10, "heads": 4}, "10 for 4 heads; 8 would do"),
        ({"heads": 0}, "multiple of heads"),
        ({"dropout": 1.0}, "dropout"),
        ({"metapaths": []}, "at least one metapath"),
        ({"metapaths": ["m-a-m", "m-a-m"]}, "more than once"),
        ({"metapaths": ["a-m-a"]}, "starts at a, not at m"),
        ({"metapaths": ["m-x-m"]}, "what fits after m is a, d"),
        ({"gamma": 2}, "gamma"),
        ({"encoder": "sum"}, "encoder"),
    ],
)
def test_bad_arguments_are_named(change: dict, message: str) -> None:
    data = small_graph()
    arguments = {"metapaths": METAPATHS, "hidden_channels": 8, "heads": 2} | change
    with pytest.raises(HanmeError, match=message):
        HANME(data.metadata(), "m", out_channels=3, **arguments)


def test_a_type_without_features_is_named() -> None:
    data = small_graph()
    model = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2)
    del data["a"].x
    with pytest.raises(HanmeError, match="'a' has no features"):
        model(data)
    HAN(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2)(data)  # needs only ends


def test_features_changed_in_place_and_graphs_that_grow_are_noticed() -> None:
    data = small_graph()
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.relu().to_sparse_csr()
    model = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    model(data).square().sum().backward()
    data["m"].x.values().mul_(3)
    grads = []
    for graph in (data, data.clone()):
        model.zero_grad()
        model(graph).square().sum().backward()
        grads.append(model.conv.proj["m"].weight.grad.clone())
    torch.testing.assert_close(*grads)
    grown = small_graph()
    model = HANME(grown.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    before = model(grown)
    grown["m"].x = torch.cat([grown["m"].x, torch.zeros(1, 7)])
    assert model(grown).shape == (len(before) + 1, 3)


def test_an_encoder_that_is_made_already_must_fit() -> None:
    data = small_graph()
    sizes = {"hidden_channels": 8, "heads": 2}
    for encoder, options, message in (
        (Multihop(2, 4), {"gamma": 0.9}, "takes no gamma"),
        (Multihop(4, 4), {}, "2 heads of 4"),
    ):
        with pytest.raises(HanmeError, match=message):
            HANME(data.metadata(), "m", METAPATHS, 3, encoder=encoder, **sizes, **options)


def test_features_of_another_type_than_the_weights_are_named() -> None:
    data = small_graph()
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.to_sparse_csr()
    model = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2)
    model(data)
    with pytest.raises(HanmeError, match=r"torch.float64, but got torch.float32"):
        model.double()(data)
