"""The layer among PyTorch's and PyG's tools: narrow types, sparse inputs, loaders, explainers."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig
from torch_geometric.explain.algorithm.utils import clear_masks, set_hetero_masks

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.nn import HANME, MAGNA, Batch, HANMEConv
from hanme.nn.parts import sparse_product
from hanme.ops import BACKENDS
from hanme.transforms import AddMetaPathInstances, CheckMetaPathInstances
from nn.test_conv import small_graph

ENCODERS = ["multihop", "direct", "mean", "linear", "rotate", "end"]


class TwoLayers(nn.Module):
    """A linear layer per node type, then two layers of HAN-ME."""

    def __init__(self, data: HeteroData, **options: object) -> None:
        super().__init__()
        self.lin = nn.ModuleDict({t: nn.Linear(data[t].num_features, 16) for t in ("m", "a")})
        self.first = HANMEConv(16, 16, data.metadata(), ["m-a-m", "a-m-a"], **options)
        self.second = HANMEConv(16, 16, data.metadata(), ["m-a-m"], **options)

    def forward(self, x_dict: dict, edge_index_dict: dict) -> Tensor:
        x = {t: lin(x_dict[t]).tanh() for t, lin in self.lin.items()}
        return self.second(self.first(x, edge_index_dict), edge_index_dict)["m"]


def learn(model: nn.Module, *inputs: object) -> list[Tensor]:
    """Return the output and all gradients, as float32."""
    model.zero_grad()
    out = model(*inputs)
    out.float().square().sum().backward()
    return [
        out.detach().float(),
        *(p.grad.float() for p in model.parameters() if p.grad is not None),
    ]


def assert_near(narrow: list[Tensor], wide: list[Tensor]) -> None:
    for x, y in zip(narrow, wide, strict=True):
        assert torch.linalg.vector_norm(x - y) < 0.1 * torch.linalg.vector_norm(y) + 2e-3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [8, 2])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_layers_learn_nearly_the_same_in_bfloat16(encoder: str, heads: int, backend: str) -> None:
    data = small_graph()
    torch.manual_seed(2)
    model = TwoLayers(data, encoder=encoder, heads=heads, backend=backend, activation="elu")
    wide = learn(model, data.x_dict, data.edge_index_dict)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_near(learn(model, data.x_dict, data.edge_index_dict), wide)
    narrow = {t: x.bfloat16() for t, x in data.x_dict.items()}
    model.bfloat16()
    assert model(narrow, data.edge_index_dict).dtype == torch.bfloat16
    assert_near(learn(model, narrow, data.edge_index_dict), wide)


@pytest.mark.parametrize("model", [HANME, MAGNA])
def test_sparse_features_are_read_in_bfloat16(model: type) -> None:
    data = small_graph()
    given = [["m-a-m", "m-d-m"]] if model is HANME else []
    options = {} if model is HANME else {"layers": 1}
    torch.manual_seed(1)
    net = model(data.metadata(), "m", *given, 3, hidden_channels=16, heads=8, **options).eval()
    sparse = {t: x.relu().to_sparse_csr() for t, x in data.x_dict.items()}
    net(Batch(sparse, data.edge_index_dict))
    wide = learn(net, Batch(sparse, data.edge_index_dict))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_near(learn(net, Batch(sparse, data.edge_index_dict)), wide)
    narrow = {t: x.bfloat16() for t, x in sparse.items()}
    assert_near(learn(net.bfloat16(), Batch(narrow, data.edge_index_dict)), wide)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_adjacency_is_named(layout: str) -> None:
    data = small_graph()
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m"])
    adjacency = torch.zeros(12, 9).index_put(tuple(data["m", "to", "a"].edge_index), torch.ones(()))
    sparse = adjacency.to_sparse_coo() if layout == "coo" else adjacency.to_sparse_csr()
    links = {**data.edge_index_dict, ("m", "to", "a"): sparse}
    with pytest.raises(HanmeError, match=r"\('m', 'to', 'a'\).*sparse adjacency"):
        conv(data.x_dict, links)
    del data["m", "to", "a"].edge_index
    data["m", "to", "a"].adj_t = sparse.t()
    data["m"].y = torch.zeros(12, dtype=torch.long)
    with pytest.raises(HanmeError, match=r"\('m', 'to', 'a'\).*sparse adjacency"):
        Graph.from_hetero(data)


def towards(data: HeteroData, seed: int, hops: int) -> HeteroData:
    """Sample all links towards a seed, as NeighborLoader does, written with sets."""
    nodes = {t: [seed] if t == "m" else [] for t in data.node_types}
    links: dict = {e: set() for e in data.edge_types}
    front = {("m", seed)}
    for _ in range(hops):
        reached = set()
        for e in data.edge_types:
            for u, w in data[e].edge_index.t().tolist():
                if (e[2], w) in front:
                    links[e].add((u, w))
                    if u not in nodes[e[0]]:
                        nodes[e[0]].append(u)
                        reached.add((e[0], u))
        front = reached
    part = HeteroData()
    for t, ids in nodes.items():
        part[t].n_id = torch.tensor(ids, dtype=torch.long)
        part[t].num_nodes = len(ids)
    part["m"].batch_size = 1
    for (s, r, t), pairs in links.items():
        local = [[nodes[s].index(u), nodes[t].index(w)] for u, w in sorted(pairs)]
        part[s, r, t].edge_index = torch.tensor(local, dtype=torch.long).view(-1, 2).t()
    return part


def test_batches_that_lack_instances_are_refused() -> None:
    data = small_graph()
    check = CheckMetaPathInstances(data, ["m-a-m"])
    to, back = (data[e].edge_index.t().tolist() for e in (("m", "to", "a"), ("a", "to", "m")))
    whole = sum(a == b for u, a in to if u == 0 for b, _ in back)
    kept = sum(a == b and w == 0 for u, a in to if u == 0 for b, w in back)  # there and back
    assert 0 < kept < whole
    short = towards(data, 0, hops=2)
    with pytest.raises(HanmeError, match=f"holds {kept} of the {whole} instances of its 1 seed"):
        check(short)
    assert CheckMetaPathInstances(data, ["m-a-m"], least=kept / whole)(short) is not None
    assert check(towards(data, 0, hops=3))["m"].batch_size == 1
    del short["m"].n_id
    with pytest.raises(HanmeError, match="n_id and batch_size of m"):
        check(short)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_layers_have_second_derivatives(encoder: str) -> None:
    data = small_graph()
    torch.manual_seed(1)
    options = {"encoder": encoder, "heads": 8, "activation": "elu"}
    model = TwoLayers(data, backend="chunked", **options).double()
    x_dict = {t: x.double() for t, x in data.x_dict.items()}

    def run(x: Tensor) -> Tensor:
        return model({**x_dict, "m": x}, data.edge_index_dict)

    given = x_dict["m"].clone().requires_grad_()
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    streaming = TwoLayers(data, **options).double()
    with pytest.raises(HanmeError, match="has no second derivatives"):
        torch.autograd.grad(
            streaming({**x_dict, "m": given}, data.edge_index_dict).sum(), given, create_graph=True
        )


def test_sparse_features_have_second_derivatives() -> None:
    data = small_graph()
    torch.manual_seed(1)
    x = data["m"].x.relu().double().to_sparse_csr()
    weight = torch.randn(7, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda w: sparse_product(x, w).sin(), weight)


def exported(conv: HANMEConv, data: HeteroData, roots: Tensor | None = None) -> ExportedProgram:
    """Export a layer with dynamic numbers of nodes, links and roots."""
    nodes = {t: {0: Dim.DYNAMIC} for t in data.x_dict}
    links = {e: {1: Dim.DYNAMIC} for e in data.edge_index_dict}
    shapes = (nodes, links) if roots is None else (nodes, links, {0: Dim.DYNAMIC})
    given = (data.x_dict, data.edge_index_dict, *([] if roots is None else [roots]))
    return export(conv, given, dynamic_shapes=shapes)


def other_graph() -> HeteroData:
    """A graph with other numbers of nodes and links, a relation without links among them."""
    data = small_graph(5)
    data["a"].x = torch.cat([data["a"].x, torch.randn(3, 5)])
    data["m"].x = data["m"].x[:11]
    data["m", "to", "d"].edge_index = torch.empty(2, 0, dtype=torch.long)
    return data


@pytest.mark.parametrize(
    ("encoder", "backend"),
    [
        ("multihop", "auto"),
        *(pytest.param(encoder, "auto", marks=pytest.mark.slow) for encoder in ENCODERS[1:]),
        pytest.param("direct", "eager", marks=pytest.mark.slow),
    ],
)
def test_exported_layers_compute_the_same_on_other_graphs(encoder: str, backend: str) -> None:
    data, other = small_graph(), other_graph()
    options = {"encoder": encoder, "heads": 8, "backend": backend}
    conv = HANMEConv(-1, 16, data.metadata(), ["m-a-m", "a-m-d"], **options).eval()
    conv(data.x_dict, data.edge_index_dict)
    module = exported(conv, data).module()
    for graph in (data, other):
        ours, theirs = (net(graph.x_dict, graph.edge_index_dict) for net in (conv, module))
        assert ours.keys() == theirs.keys()
        for kind, z in ours.items():
            torch.testing.assert_close(theirs[kind], z)
    links = {**other.edge_index_dict, ("m", "to", "a"): torch.tensor([[0], [99]])}
    with pytest.raises(HanmeError, match="it names nodes 99 to 99 of a"):
        module(other.x_dict, links)


@pytest.mark.slow
def test_exported_layers_take_roots_and_learn() -> None:
    data, other = small_graph(), other_graph()
    conv = HANMEConv(-1, 16, data.metadata(), ["m-a-m"], dropout=0.3).eval()
    conv(data.x_dict, data.edge_index_dict)
    module = exported(conv, data, torch.tensor([3, 1])).module()
    x, roots = other["m"].x.clone().requires_grad_(), torch.tensor([4, 0, 4])
    given = {**other.x_dict, "m": x}, other.edge_index_dict
    ours, theirs = (net(*given, roots)["m"] for net in (conv, module))
    torch.testing.assert_close(theirs, ours)
    direction = torch.randn_like(ours)
    grads = (torch.autograd.grad(z, x, direction)[0] for z in (ours, theirs))
    torch.testing.assert_close(*grads)
    with pytest.raises(HanmeError, match="from 0 to 10, but got 0 to 11"):
        module(*given, torch.tensor([0, 11]))
    with pytest.raises(HanmeError, match="call eval"):
        exported(conv.train(), data)
    streaming = HANMEConv(7, 16, data.metadata(), ["m-a-m"], backend="streaming")
    streaming.channels.proj = conv.channels.proj
    with pytest.raises(HanmeError, match="expected backend chunked or eager, but got streaming"):
        exported(streaming, data)


class ByName(nn.Module):
    """A layer called with tensors, since files of torch.export keep no tuples as keys."""

    def __init__(self, conv: HANMEConv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, a: Tensor, to: Tensor, back: Tensor) -> Tensor:
        links = {("m", "to", "a"): to, ("a", "to", "m"): back}
        return self.conv({"m": x, "a": a}, links)["m"]


LOADED = """
import sys, torch, hanme.nn
given, expected = torch.load(sys.argv[2], weights_only=True)
torch.testing.assert_close(torch.export.load(sys.argv[1]).module()(*given), expected)
"""


@pytest.mark.slow
def test_exported_layers_load_in_another_process(tmp_path: Path) -> None:
    data, other = small_graph(), other_graph()
    net = ByName(HANMEConv(-1, 16, data.metadata(), ["m-a-m"])).eval()
    first, given = (
        (d["m"].x, d["a"].x, d["m", "to", "a"].edge_index, d["a", "to", "m"].edge_index)
        for d in (data, other)
    )
    net(*first)
    shapes = ({0: Dim.DYNAMIC},) * 2 + ({1: Dim.DYNAMIC},) * 2
    torch.export.save(export(net, first, dynamic_shapes=shapes), tmp_path / "conv.pt2")
    torch.save((given, net(*given).detach()), tmp_path / "given.pt")
    paths = str(tmp_path / "conv.pt2"), str(tmp_path / "given.pt")
    subprocess.run([sys.executable, "-c", LOADED, *paths], check=True)


def by_loop(conv: HANMEConv, data: HeteroData, masks: dict) -> Tensor:
    """The vectors of m-a-m under masks with the encoder mean and one head, one root at a time."""
    along = conv.channels
    m, a = (along.proj[t](data[t].x) for t in ("m", "a"))
    links = [[*zip(*data[e].edge_index.tolist(), masks[e].tolist(), strict=True)] for e in STEPS]
    rows = []
    for root in range(len(m)):
        walked = [(i, k, p * q) for u, i, p in links[0] if u == root
                  for j, k, q in links[1] if i == j]  # fmt: skip
        e = [(m[root] + a[i] + m[k]) / 3 for i, k, _ in walked]
        pair = [torch.cat([m[root], x]) for x in e]
        attention = torch.cat([along.att_root[0][0, 0], along.att_instance[0][0, 0]])
        scores = [nn.functional.leaky_relu(attention @ x, 0.2).item() for x in pair]
        weights = torch.tensor(scores).softmax(0).tolist()
        z = sum(w * s * x for w, (_, _, s), x in zip(weights, walked, e, strict=True))
        rows.append(z.relu() if e else torch.zeros_like(m[root]))
    return torch.stack(rows)


STEPS = [("m", "to", "a"), ("a", "to", "m")]


@pytest.mark.parametrize("backend", ["auto", "eager"])
def test_masks_of_links_scale_their_instances(backend: str) -> None:
    data = small_graph()
    links = data["m", "to", "a"].edge_index
    data["m", "to", "a"].edge_index = links[:, torch.randperm(links.size(1))]
    options = {"encoder": "mean", "backend": backend}
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m"], **options).eval()
    plain = conv(data.x_dict, data.edge_index_dict)["m"]
    masks = {e: torch.randn(data[e].num_edges) for e in STEPS}
    set_hetero_masks(conv, masks, data.edge_index_dict)
    masked = conv(data.x_dict, data.edge_index_dict)["m"]
    expected = by_loop(conv, data, {e: mask.sigmoid() for e, mask in masks.items()})
    torch.testing.assert_close(masked, expected)
    some = conv(data.x_dict, data.edge_index_dict, torch.tensor([5, 2]))["m"]
    torch.testing.assert_close(some, expected[[5, 2]])
    set_hetero_masks(conv, masks, data.edge_index_dict, apply_sigmoid=False)
    torch.testing.assert_close(conv(data.x_dict, data.edge_index_dict)["m"],
                               by_loop(conv, data, masks))  # fmt: skip
    clear_masks(conv)
    torch.testing.assert_close(conv(data.x_dict, data.edge_index_dict)["m"], plain)
    assert not any("explained" in key for key in conv.state_dict())


def test_masks_that_cannot_be_used_are_named() -> None:
    data = small_graph()
    masks = {e: torch.zeros(data[e].num_edges) for e in STEPS}
    for options, message in (
        ({"encoder": "end"}, "encoder End counts each end of m-a-m once"),
        ({"backend": "streaming"}, "chunked or eager for link masks, but got streaming"),
    ):
        conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m"], **options)
        set_hetero_masks(conv, masks, data.edge_index_dict)
        with pytest.raises(HanmeError, match=message):
            conv(data.x_dict, data.edge_index_dict)
    conv = HANMEConv(-1, 8, data.metadata(), ["m-a-m"])
    set_hetero_masks(conv, {STEPS[0]: torch.zeros(3)}, data.edge_index_dict)
    with pytest.raises(HanmeError, match=r"\('m', 'to', 'a'\): expected a mask of \d+ links"):
        conv(data.x_dict, data.edge_index_dict)


class Net(nn.Module):
    """Logits of the movies, for an explainer."""

    def __init__(self, data: HeteroData, **options: object) -> None:
        super().__init__()
        self.conv = HANMEConv(-1, 16, data.metadata(), ["m-a-m"], **options)
        self.head = nn.Linear(16, 2)

    def forward(self, x_dict: dict, edge_index_dict: dict) -> Tensor:
        return self.head(self.conv(x_dict, edge_index_dict)["m"])


@pytest.mark.parametrize("encoder", ["multihop", "direct", "mean"])
def test_an_explainer_of_pyg_finds_the_planted_link(encoder: str) -> None:
    generator = torch.Generator().manual_seed(1)
    actors = torch.stack([torch.randperm(30, generator=generator)[:4] for _ in range(60)])
    movies = torch.arange(60).repeat_interleave(4)
    data = HeteroData()
    data["m"].x = torch.ones(60, 1)
    data["a"].x = torch.zeros(30, 2)
    data["a"].x[:, 0] = 1
    data["a"].x[:3] = torch.tensor([0.0, 1.0])  # what makes a movie one of class 1
    data["m", "to", "a"].edge_index = torch.stack([movies, actors.flatten()])
    data["a", "to", "m"].edge_index = torch.arange(60).new_tensor([[i, 59] for i in range(30)]).t()
    y = (actors < 3).any(1).long()
    torch.manual_seed(1)
    net = Net(data, encoder=encoder)
    net(data.x_dict, data.edge_index_dict)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(data.x_dict, data.edge_index_dict), y)
        loss.backward()
        optimizer.step()
    assert (net(data.x_dict, data.edge_index_dict).argmax(1) == y).float().mean() > 0.95
    explainer = Explainer(
        net,
        # By default, entropy drives masks of links without effect to 0 or 1, as drawn.
        GNNExplainer(epochs=60, lr=0.1, edge_ent=0.0, edge_size=0.05),
        explanation_type="model",
        edge_mask_type="object",
        model_config=ModelConfig("multiclass_classification", "node", "raw"),
    )
    roots = ((actors < 3).sum(1) == 1).nonzero().flatten()[:4].tolist()
    for root in roots:
        found = explainer(data.x_dict, data.edge_index_dict, index=root)
        mask = found["m", "to", "a"].edge_mask
        assert mask[movies != root].max() == 0  # other movies' links play no part
        assert actors.flatten()[mask.argmax()] < 3
    assert len(roots) == 4
    assert not any(module.explain for module in net.conv.explained.values())


def test_edge_attr_is_kept() -> None:
    data = small_graph()
    data["m"].y = torch.arange(12) % 2
    links = data["m", "to", "a"].edge_index
    data["m", "to", "a"].edge_attr = torch.stack([*links, links.sum(0)], 1).float()
    graph = Graph.from_hetero(data)
    data = AddMetaPathInstances(["m-a-m"])(graph.to_hetero())
    u, w, total = data["m", "to", "a"].edge_attr.t()
    assert torch.equal(torch.stack([u, w]).long(), data["m", "to", "a"].edge_index)
    assert torch.equal(total, u + w)
    assert "edge_attr" not in data["a", "to", "m"]
    back = graph.with_reverse({("m", "to", "a"): ("a", "back", "m")}).to_hetero()["a", "back", "m"]
    assert torch.equal(back.edge_attr[:, [1, 0]].t().long(), back.edge_index)
    part = graph.subgraph(torch.tensor([3]), [(("m", "to", "a"),)])
    all_links = torch.stack([u, w, total], 1)
    kept = part.edge_attr["m", "to", "a"]
    assert len(kept) == part.links["m", "to", "a"].size(1) > 0
    assert sorted(kept.tolist()) == sorted(all_links[u == 3].tolist())
    with pytest.raises(HanmeError, match="edge_dim: Input should be a valid dictionary"):
        HANMEConv(-1, 8, data.metadata(), ["m-a-m"], edge_dim=3)
    data["m", "to", "a"].edge_attr = torch.zeros(3)
    with pytest.raises(HanmeError, match=r"expected edge_attr of \d+ links, but got \[3\]"):
        Graph.from_hetero(data)
