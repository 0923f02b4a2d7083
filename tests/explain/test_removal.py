"""Taking instances out, against a graph that does not have them."""

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets import planted
from hanme.errors import HanmeError
from hanme.explain import removal
from hanme.explain.removal import OpenModel
from hanme.nn import HAN, HANME, MAGNN

SHORT = ["movie-director-movie", "movie-actor-movie"]
LONG = ["movie-actor-movie-keyword-movie", "movie-director-movie"]
MODELS = [
    (HANME, {"encoder": "multihop"}),
    (HANME, {"encoder": "direct"}),
    (HANME, {"encoder": "direct", "values": "transformed"}),
    (HANME, {"encoder": "mean"}),
    (HANME, {"encoder": "linear"}),
    (HANME, {"encoder": "rotate"}),
    (HAN, {}),
    (MAGNN, {}),
]


def make(model: type, options: dict, metapaths: list[str], *, sharp: float = 1.0):
    """A small graph and an untrained model on it, in double precision, with some bias."""
    torch.manual_seed(3)
    data = planted(movies=60)
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.to_dense().double()
    net = model(
        data.metadata(), "movie", metapaths, 5, hidden_channels=16, heads=2, **options
    ).double()
    with torch.no_grad():
        net.train(False)(data)
        for attention in net.conv.att_instance:
            attention *= sharp
    return net, data


def logits_of(net, data: HeteroData, node: int, beta: Tensor) -> Tensor:
    """The model's own logits of a node, with metapaths weighed by ``beta``."""
    weighed: list[Tensor] = []

    def hold(module, zs, output):
        out = torch.einsum("p,pnc->nc", beta, torch.stack(list(zs[0])))
        weighed.append(out)
        return out, output[1]

    with torch.no_grad():
        watch = net.conv.semantic.register_forward_hook(hold)
        logits = net(data)[node]
        watch.remove()
    assert len(weighed) == 1
    return logits


def without_links(data: HeteroData, step: tuple, links: list[tuple[int, int]]) -> HeteroData:
    """The graph without some links of one relation."""
    smaller = data.clone()
    rows, columns = data[step].edge_index.tolist()
    kept = [i for i, link in enumerate(zip(rows, columns, strict=True)) if link not in links]
    assert len(kept) < len(rows)
    smaller[step].edge_index = data[step].edge_index[:, kept]
    return smaller


@pytest.mark.parametrize("sharp", [1.0, 300.0])  # 300: one instance has all the weight of a head
@pytest.mark.parametrize(("model", "options"), MODELS)
def test_a_move_is_what_deleting_the_instance_does(
    model: type, options: dict, sharp: float
) -> None:
    net, data = make(model, options, SHORT, sharp=sharp)
    opened = OpenModel(net, data)
    beta = torch.tensor(opened.beta, dtype=torch.double)
    root = opened.root(7)
    with torch.no_grad():
        for path, (text, instances) in enumerate(zip(opened.problems, root.paths, strict=True)):
            some = next(instances.blocks())
            moves = root.moves(path, some)
            step = (text.split("-")[1], "to", "movie")  # each instance has its own last link
            # The other metapath does not walk it, and HAN sees an end through any of its links.
            for p, (*_, before, end) in enumerate(some.instances.nodes.tolist()[:9]):
                sources = data[step].edge_index[0][data[step].edge_index[1] == end].tolist()
                gone = [(s, end) for s in sources] if model is HAN else [(before, end)]
                real = logits_of(net, without_links(data, step, gone), 7, beta)
                torch.testing.assert_close(root.logits - moves[p], real, rtol=1e-8, atol=1e-8)
                number = some.instances.number[p : p + 1]
                numbers = [number if i == path else number[:0] for i in range(2)]
                torch.testing.assert_close(root.logits_without(numbers), real, rtol=1e-8, atol=1e-8)
    heaviest = max(float(block.weight.max()) for path in root.paths for block in path.blocks())
    assert (heaviest > removal.NEARLY_ALL) == (sharp > 1)


@pytest.mark.parametrize(("model", "options"), [m for m in MODELS if m[0] is not HAN])
@pytest.mark.parametrize("kept", [0, removal.KEPT])
def test_sets_of_instances_of_long_metapaths(
    model: type, options: dict, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "KEPT", kept)
    monkeypatch.setattr(removal, "BLOCK", 16)
    net, data = make(model, options, LONG)
    opened = OpenModel(net, data)
    root = opened.root(7)
    nodes = torch.cat([block.instances.nodes for block in root.paths[0].blocks()])
    end = nodes[len(nodes) // 2, -2:].tolist()  # all instances that walk this link
    numbers = [
        (nodes[:, -2:] == torch.tensor(end)).all(1).nonzero().flatten(),
        torch.empty(0).long(),
    ]
    assert numbers[0].numel()
    smaller = without_links(data, ("keyword", "to", "movie"), [tuple(end)])
    real = logits_of(net, smaller, 7, torch.tensor(opened.beta, dtype=torch.double))
    with torch.no_grad():
        torch.testing.assert_close(root.logits_without(numbers), real, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("model", "options"), MODELS)
def test_without_any_instance_a_metapath_gives_nothing(model: type, options: dict) -> None:
    net, data = make(model, options, SHORT)
    opened = OpenModel(net, data)
    root = opened.root(7)
    step = ("movie", "to", "director")
    links = data[step].edge_index
    gone = [(7, int(d)) for d in links[1][links[0] == 7]]
    beta = torch.tensor(opened.beta, dtype=torch.double)
    real = logits_of(net, without_links(data, step, gone), 7, beta)
    with torch.no_grad():
        found = root.logits_without([torch.arange(len(root.paths[0])), torch.empty(0).long()])
    torch.testing.assert_close(found, real, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("model", "options"), MODELS)
def test_parts_and_bias_make_the_logits(model: type, options: dict) -> None:
    net, data = make(model, options, SHORT)
    root = OpenModel(net, data).root(7)
    with torch.no_grad():
        parts = [
            root.parts(path, block)
            for path, instances in enumerate(root.paths)
            for block in instances.blocks()
        ]
        logits = net.train(False)(data)[7]
    torch.testing.assert_close(torch.cat(parts).sum(0) + net.lin.bias, logits)


def test_many_instances_of_a_pair_encoder_are_encoded_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, data = make(HANME, {"encoder": "direct"}, LONG)
    problem = OpenModel(net, data).problems[LONG[0]]
    busiest = int(problem.chain.count().argmax())
    assert problem.chain.count()[busiest] > sum(problem.chain.sizes)
    path = removal.Path(problem, busiest)
    monkeypatch.setattr(removal, "_for_root", lambda problem, root: problem)
    torch.testing.assert_close(path.z, removal.Path(problem, busiest).z)


def test_a_model_that_does_more_is_refused() -> None:
    _, data = make(HANME, {}, SHORT)

    class More(HANME):
        def forward(self, data: HeteroData) -> Tensor:
            return super().forward(data) * 2 + 1

    more = More(data.metadata(), "movie", SHORT, 5, hidden_channels=16, heads=2).double()
    with torch.no_grad():
        more(data)
    with pytest.raises(HanmeError, match="does more than"):
        OpenModel(more, data).root(7)
