"""Taking instances out, against a graph that does not have them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hanme import Graph
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.explain import removal
from hanme.explain.removal import OpenModel
from hanme.nn import HAN, HANME, MAGNN
from hanme.nn.batch import Batch
from hanme.nn.channels import Channels, Task
from hanme.nn.parts import Projection

SHORT = ["movie-director-movie", "movie-actor-movie"]
LONG = ["movie-actor-movie-keyword-movie", "movie-director-movie"]
MODELS = [
    (HANME, {"encoder": "multihop"}),
    (HANME, {"gate": "relu", "learn_gamma": True}),
    (HANME, {"gate": "tanh", "attention": "uniform"}),
    (HANME, {"encoder": "direct"}),
    (HANME, {"encoder": "direct", "values": "transformed"}),
    (HANME, {"encoder": "mean"}),
    (HANME, {"encoder": "linear"}),
    (HANME, {"encoder": "rotate"}),
    (HAN, {}),
    (MAGNN, {}),
]
SOFTMAX = (HANME, {"gate": "softmax"})
"""Its gates are held fixed, as β is: without a link, those of the node's other links change."""


def make(model: type, options: dict, metapaths: list[str], *, sharp: float = 1.0):
    """A small graph and an untrained model on it, in double precision, with some bias."""
    torch.manual_seed(3)
    graph = planted(movies=60, seed=483)
    for nodes in graph.nodes.values():
        nodes.x = nodes.x.to_dense().double()
    sizes = {"in_channels": graph.widths, "hidden_channels": 16, "heads": 2}
    net = model(graph.metadata(), "movie", metapaths, 5, **sizes, **options).double().eval()
    with torch.no_grad():
        for attention in net.channels[0].att_instance:
            attention *= sharp
    return net, graph


@torch.no_grad()
def all_logits(net, graph: Graph) -> Tensor:
    return net(Batch.of(graph))


def logits_of(net, graph: Graph, node: int, beta: Tensor) -> Tensor:
    """The model's own logits of a node, with metapaths weighed by ``beta``."""
    weighed: list[Tensor] = []

    def hold(module, zs, output):
        weighed.append(torch.einsum("p,pnc->nc", beta, torch.stack(list(zs[0]))))
        return weighed[-1]

    watch = net.fusion.register_forward_hook(hold)
    logits = all_logits(net, graph)[node]
    watch.remove()
    assert len(weighed) == 1
    return logits


def without_links(graph: Graph, step: tuple, links: list[tuple[int, int]]) -> Graph:
    """The graph without some links of one relation."""
    rows, columns = graph.links[step].tolist()
    kept = [i for i, link in enumerate(zip(rows, columns, strict=True)) if link not in links]
    assert len(kept) < len(rows)
    return replace(graph, links=graph.links | {step: graph.links[step][:, kept]})


@pytest.mark.parametrize(
    ("model", "options", "sharp"),
    [(*m, 1.0) for m in MODELS]
    # One instance has all the weight of a head.
    + [(*m, 3000.0) for m in MODELS if "attention" not in m[1]],
)
def test_a_move_is_what_deleting_the_instance_does(
    model: type, options: dict, sharp: float
) -> None:
    net, graph = make(model, options, SHORT, sharp=sharp)
    opened = OpenModel(net, graph)
    beta = torch.tensor(opened.beta, dtype=torch.double)
    root = opened.root(7)
    with torch.no_grad():
        for path, (text, instances) in enumerate(zip(opened.paths, root.paths, strict=True)):
            some = next(instances.blocks())
            moves = instances.moves(some)
            step = (text.split("-")[1], "to", "movie")  # each instance has its own last link
            # The other metapath does not walk it, and HAN sees an end through any of its links.
            for p, (*_, before, end) in enumerate(some.instances.nodes.tolist()[:9]):
                links = graph.links[step]
                sources = links[0][links[1] == end].tolist()
                gone = [(s, end) for s in sources] if model is HAN else [(before, end)]
                real = logits_of(net, without_links(graph, step, gone), 7, beta)
                torch.testing.assert_close(root.logits - moves[p], real, rtol=1e-8, atol=1e-8)
                number = some.instances.number[p : p + 1]
                numbers = [number if i == path else number[:0] for i in range(2)]
                torch.testing.assert_close(root.logits_without(numbers), real, rtol=1e-8, atol=1e-8)
    heaviest = max(float(block.weight.max()) for path in root.paths for block in path.blocks())
    assert (heaviest > removal.NEARLY_ALL) == (sharp > 1)


@pytest.mark.parametrize(("model", "options"), [m for m in MODELS if m[0] is not HAN])
def test_sets_of_instances_of_long_metapaths(
    model: type, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "BLOCK", 16)
    net, graph = make(model, options, LONG)
    opened = OpenModel(net, graph)
    root = opened.root(7)
    nodes = torch.cat([block.instances.nodes for block in root.paths[0].blocks()])
    end = nodes[len(nodes) // 2, -2:].tolist()  # all instances that walk this link
    numbers = [
        (nodes[:, -2:] == torch.tensor(end)).all(1).nonzero().flatten(),
        torch.empty(0).long(),
    ]
    assert numbers[0].numel()
    smaller = without_links(graph, ("keyword", "to", "movie"), [tuple(end)])
    real = logits_of(net, smaller, 7, torch.tensor(opened.beta, dtype=torch.double))
    with torch.no_grad():
        torch.testing.assert_close(root.logits_without(numbers), real, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("model", "options"), MODELS)
def test_without_any_instance_a_metapath_gives_nothing(model: type, options: dict) -> None:
    net, graph = make(model, options, SHORT)
    opened = OpenModel(net, graph)
    root = opened.root(7)
    step = ("movie", "to", "director")
    links = graph.links[step]
    gone = [(7, int(d)) for d in links[1][links[0] == 7]]
    beta = torch.tensor(opened.beta, dtype=torch.double)
    real = logits_of(net, without_links(graph, step, gone), 7, beta)
    with torch.no_grad():
        found = root.logits_without([torch.arange(len(root.paths[0])), torch.empty(0).long()])
    torch.testing.assert_close(found, real, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("model", "options"), [*MODELS, SOFTMAX])
def test_parts_and_bias_make_the_logits(model: type, options: dict) -> None:
    net, graph = make(model, options, SHORT)
    root = OpenModel(net, graph).root(7)
    with torch.no_grad():
        parts = [path.parts(block) for path in root.paths for block in path.blocks()]
    logits = all_logits(net, graph)[7]
    torch.testing.assert_close(torch.cat(parts).sum(0) + net.head.bias, logits)


class OwnFeatures(Channels):
    """Vectors from the root's own features."""

    names = ("own features",)

    def __init__(self, task: Task, out_channels: int) -> None:
        super().__init__(task, out_channels)
        self.lin = Projection(task.width(task.target), out_channels)

    def forward(self, batch: Batch) -> list[Tensor]:
        return [self.lin(batch.x_dict["movie"])]


def test_what_is_not_made_of_instances_is_added_by_name() -> None:
    net, graph = make(HANME, {"channels": ["features", OwnFeatures]}, SHORT)
    net.float()  # as averages of features are
    for nodes in graph.nodes.values():
        nodes.x = nodes.x.float()
    root = OpenModel(net, graph).root(7)
    assert set(root.others) == {"bias", "own features", *net.channels[1].names}
    assert net.channels[1].names[0] == "features of movie"
    with torch.no_grad():
        parts = [path.parts(block) for path in root.paths for block in path.blocks()]
    found = torch.cat(parts).sum(0) + sum(root.others.values())
    torch.testing.assert_close(found.float(), all_logits(net, graph)[7])


def test_a_model_that_does_more_is_refused() -> None:
    class More(HANME):
        def forward(self, batch: Batch) -> Tensor:
            return super().forward(batch) * 2 + 1

    with pytest.raises(HanmeError, match="does more than"):
        OpenModel(*make(More, {}, SHORT)).root(7)


def test_several_threads_open_one_model() -> None:
    model, graph = make(HANME, {}, SHORT)
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda node: OpenModel(model, graph, node), range(60)))
    assert all(len(one.beta) == len(SHORT) for one in opened)
