"""The layer and the models, against PyG's HANConv and against each other."""

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HANConv
from torch_geometric.transforms import AddMetaPaths

from hanme.errors import HanmeError
from hanme.graph.metapath import Metapath
from hanme.nn import GAT, HAN, HANME, HANMEConv, PathEncoder, SemanticAttention
from hanme.nn.batch import Batch
from hanme.nn.encoders import Multihop
from hanme.nn.parts import Projection
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


def logits(model: nn.Module, data: HeteroData) -> Tensor:
    return model(Batch(data.x_dict, data.edge_index_dict))


def test_han_equals_pyg_hanconv_with_the_same_weights() -> None:
    data = small_graph()
    ours = HANMEConv(-1, 8, data.metadata(), METAPATHS, heads=2, encoder="end").eval()
    model = HAN(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    ours(data.x_dict, data.edge_index_dict)
    logits(model, data)
    with_metapaths = AddMetaPaths(
        [[("m", "a"), ("a", "m")], [("m", "d"), ("d", "m")]], drop_orig_edge_types=True
    )(data.clone())
    theirs = HANConv(-1, 8, metadata=with_metapaths.metadata(), heads=2, dropout=0.6).eval()
    # PyG's messages flow along an edge; ours come back along the path from its root.
    edges = {e: index.flip(0) for e, index in with_metapaths.edge_index_dict.items()}
    theirs(with_metapaths.x_dict, edges)
    along = ours.channels
    with torch.no_grad():
        theirs.proj["m"].weight.copy_(along.proj["m"].weight)
        theirs.proj["m"].bias.copy_(along.proj["m"].bias)
        for i in range(2):
            key = f"m__metapath_{i}__m"
            theirs.lin_src[key].copy_(along.att_instance[i])
            theirs.lin_dst[key].copy_(along.att_root[i])
        theirs.k_lin.load_state_dict(ours.semantic.k_lin.state_dict())
        theirs.q.copy_(ours.semantic.q)
    expected, expected_beta = theirs(
        with_metapaths.x_dict, edges, return_semantic_attention_weights=True
    )
    out, beta = ours(data.x_dict, data.edge_index_dict, return_semantic_attention_weights=True)
    torch.testing.assert_close(out["m"], expected["m"])
    torch.testing.assert_close(beta["m"], expected_beta["m"])
    model.channels[0].load_state_dict(along.state_dict())
    model.fusion.load_state_dict(ours.semantic.state_dict())
    torch.testing.assert_close(logits(model, data), model.head(expected["m"]))


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
        logits(model, data)
        torch.manual_seed(2)
        out = logits(model.train(), data)  # with dropout: all backends see the same draw
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
        out = logits(model, graph)
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
    assert list(conv.channels.proj) == ["m", "a"]
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m"], encoder="end")
    assert list(conv.channels.proj) == ["m"]


@pytest.mark.parametrize("name", ["items", "training", "to", "a.b", "_modules"])
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
    logits(net, data).sum().backward()
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
    first = logits(model, data)
    assert not torch.allclose(logits(model, other), first)
    torch.testing.assert_close(logits(model, data), first)
    batch = Batch(data.x_dict, data.edge_index_dict)
    again = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2)
    for mine, theirs in zip(*(m.channels[0].chains(batch) for m in (model, again)), strict=True):
        assert mine is theirs
    data["m", "to", "a"].edge_index[1] = 0
    assert not torch.allclose(logits(model, data), first)


class Attending(PathEncoder):
    """Attention among the nodes of an instance; what the root sees is read."""

    def __init__(self, heads: int, channels: int, metapaths=()) -> None:
        super().__init__(heads, channels, metapaths)
        self.attention = nn.MultiheadAttention(channels, 1, batch_first=True)
        self.scale = nn.Parameter(torch.randn(channels))

    def encode(self, values, links, metapath):
        tokens = values.transpose(1, 2).flatten(0, 1)
        seen = self.attention(tokens, tokens, tokens)[0][:, 0] * self.scale
        return seen.view(len(values), self.heads, self.channels)


def test_reset() -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), METAPATHS, heads=2)
    conv(data.x_dict, data.edge_index_dict)
    before = [weight.clone() for weight in conv.parameters()]
    conv.reset_parameters()
    drawn = [w for w in before if w.any()]  # biases begin at 0
    again = [w for w, b in zip(conv.parameters(), before, strict=True) if b.any()]
    assert not any(torch.equal(a, b) for a, b in zip(drawn, again, strict=True))


def test_reset_draws_what_a_new_layer_would() -> None:
    """Modules such as MultiheadAttention have no public method to draw their weights anew."""
    data = small_graph()
    sizes = {t: x.size(1) for t, x in data.x_dict.items()}

    def layer(width: int | dict[str, int]) -> HANMEConv:
        torch.manual_seed(1)
        return HANMEConv(width, 8, data.metadata(), METAPATHS, heads=2, encoder=Attending)

    reset, new = layer(-1), layer(sizes)
    reset(data.x_dict, data.edge_index_dict)
    torch.manual_seed(1)
    reset.reset_parameters()
    for name, weight in new.named_parameters():
        assert torch.equal(weight, reset.get_parameter(name)), name


def test_reset_refuses_an_encoder_that_it_cannot_make() -> None:
    metapaths = [Metapath.of(text, small_graph().metadata()) for text in METAPATHS]
    conv = HANMEConv(-1, 8, small_graph().metadata(), metapaths, encoder=Multihop(1, 8, metapaths))
    with pytest.raises(HanmeError, match="passed as an instance"):
        conv.reset_parameters()


def test_semantic_attention_of_one_metapath_is_that_metapath() -> None:
    z = torch.randn(5, 4)
    fusion = SemanticAttention(1, 4)
    torch.testing.assert_close(fusion([z]), z)
    assert fusion.weights([z]).tolist() == [1.0]


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
        logits(model, data)
    model = HAN(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2)
    assert logits(model, data).shape == (12, 3)  # needs only ends


def test_features_changed_in_place_and_graphs_that_grow_are_noticed() -> None:
    data = small_graph()
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.relu().to_sparse_csr()
    model = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    logits(model, data).square().sum().backward()
    data["m"].x.values().mul_(3)
    grads = []
    for graph in (data, data.clone()):
        model.zero_grad()
        logits(model, graph).square().sum().backward()
        grads.append(model.channels[0].proj["m"].weight.grad.clone())
    torch.testing.assert_close(*grads)
    grown = small_graph()
    model = HANME(grown.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2).eval()
    before = logits(model, grown)
    grown["m"].x = torch.cat([grown["m"].x, torch.zeros(1, 7)])
    assert logits(model, grown).shape == (len(before) + 1, 3)


def test_an_encoder_that_is_made_already_must_fit() -> None:
    data = small_graph()
    sizes = {"hidden_channels": 8, "heads": 2}
    for encoder, options, message in (
        (Multihop(2, 4), {"gamma": 0.9}, "an instance takes no gamma"),
        (Multihop(4, 4), {}, "2 heads of 4"),
    ):
        with pytest.raises(HanmeError, match=message):
            HANME(data.metadata(), "m", METAPATHS, 3, encoder=encoder, **sizes, **options)


def test_features_of_another_type_than_the_weights_are_named() -> None:
    data = small_graph()
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.to_sparse_csr()
    model = HANME(data.metadata(), "m", METAPATHS, 3, hidden_channels=8, heads=2)
    logits(model, data)
    with pytest.raises(HanmeError, match=r"torch.float64, but got torch.float32"):
        logits(model.double(), data)


def test_a_layer_without_sizes_is_saved_and_loaded_as_those_of_pyg() -> None:
    data = small_graph()
    torch.manual_seed(0)
    sized = HANMEConv(-1, 8, data.metadata(), METAPATHS, heads=2)
    empty = sized.state_dict()
    expected = sized(data.x_dict, data.edge_index_dict)["m"]
    loaded = HANMEConv(-1, 8, data.metadata(), METAPATHS, heads=2)
    loaded.load_state_dict(sized.state_dict())
    assert torch.equal(loaded(data.x_dict, data.edge_index_dict)["m"], expected)
    again = HANMEConv(-1, 8, data.metadata(), METAPATHS, heads=2)
    again.load_state_dict(empty)  # still without sizes
    assert again(data.x_dict, data.edge_index_dict)["m"].shape == (12, 8)


def test_roots_of_several_types_are_refused() -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m", "a-m-a"], heads=2)
    with pytest.raises(HanmeError, match="several types: m, a"):
        conv(data.x_dict, data.edge_index_dict, torch.tensor([0]))


@pytest.mark.parametrize("metapaths", [METAPATHS, METAPATHS[:1]])
def test_the_result_has_the_type_of_the_weights_under_autocast(metapaths: list[str]) -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), metapaths, heads=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert conv(data.x_dict, data.edge_index_dict)["m"].dtype == torch.float32


def test_links_listed_twice_stay_two_after_han() -> None:
    data = small_graph()
    for step in (("m", "to", "a"), ("a", "to", "m")):
        links = data[step].edge_index
        data[step].edge_index = torch.cat([links, links[:, ::3]], 1)
    torch.manual_seed(0)
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m"], heads=2, encoder="mean", backend="eager")
    expected = conv(data.x_dict, data.edge_index_dict)["m"]
    other = data.clone()  # whose chains are not cached yet
    HANMEConv(-1, 8, data.metadata(), ["m-a-m"], heads=2, encoder="end")(
        other.x_dict, other.edge_index_dict
    )
    assert torch.equal(conv(other.x_dict, other.edge_index_dict)["m"], expected)
