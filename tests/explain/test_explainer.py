"""Explanations name the instances that made a logit, and their parts add up to it."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from hanme import Graph
from hanme.data import planted
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.explain import Explainer, explain, removal
from hanme.nn import GAT, HAN, HANME
from hanme.nn.batch import Batch

EVERY = 10**6


@pytest.fixture
def graph() -> Graph:
    return planted(movies=100)


def untrained(graph: Graph, model: type = HANME, metapaths: list[str] | None = None, **options):
    torch.manual_seed(1)
    sizes = {"in_channels": graph.widths, "heads": 2, "hidden_channels": 16}
    return model(graph.metadata(), "movie", metapaths or graph.metapaths, 5, **sizes, **options)


def logits_of(net, graph: Graph) -> torch.Tensor:
    with torch.no_grad():
        return net.eval()(Batch.of(graph))


@pytest.mark.parametrize(
    ("model", "options"), [(HANME, {}), (HANME, {"encoder": "direct"}), (HAN, {})]
)
def test_names_and_numbers(model: type, options: dict, graph: Graph) -> None:
    net = untrained(graph, model, **options)
    found = explain(net, graph, 7, instances=3)
    assert net.training  # as it was
    assert (found.node, found.id, found.number) == (graph.targets.names[7], "7", 7)
    assert sum(found.details.metapaths.values()) == pytest.approx(1)
    logits = logits_of(net, graph)[7]
    assert list(found.logits.values()) == pytest.approx(logits.tolist(), rel=1e-6, abs=1e-6)
    assert list(found.probabilities.values()) == pytest.approx(logits.sigmoid().tolist())
    assert found.label == max(found.logits, key=found.logits.get)
    for instance in found.details.instances:
        assert instance.nodes[0] == found.node
        assert len(instance.nodes) == (2 if model is HAN else 3)
        assert sum(instance.hops) == pytest.approx(1)
        for node_type, name, number in zip(
            instance.types, instance.nodes, instance.ids, strict=True
        ):
            assert graph.nodes[node_type].names[int(number)] == name
    assert " <- ".join(found.details.instances[0].nodes) in found.text(details=True)
    assert " <- " not in str(found)
    assert explain(net, graph, found.node, instances=3) == found


@pytest.mark.parametrize(("model", "options"), [(HANME, {}), (HAN, {})])
def test_all_instances_have_all_the_attention_and_make_the_logit(
    model: type, options: dict, graph: Graph
) -> None:
    net = untrained(graph, model, **options)
    found = explain(net, graph, 7, instances=EVERY)
    assert sum(found.details.counts.values()) == len(found.details.instances)
    assert sum(instance.attention for instance in found.details.instances) == pytest.approx(1)
    for i, (label, logit) in enumerate(found.logits.items()):
        parts = math.fsum(instance.parts[label] for instance in found.details.instances)
        assert found.details.others["bias"][label] == float(net.head.bias[i].detach())
        assert parts + found.details.others["bias"][label] == pytest.approx(logit, abs=1e-5)


@pytest.mark.parametrize("encoder", ["multihop", "direct", "rotate"])
def test_the_top_is_the_top_of_all_however_it_is_walked(
    encoder: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    metapaths = ["movie-actor-movie-actor-movie", "movie-director-movie"]
    net = untrained(graph, metapaths=metapaths, encoder=encoder)
    every = explain(net, graph, 7, instances=EVERY)
    parts = [instance.parts[every.label] for instance in every.details.instances]
    assert len(parts) > 200
    assert all(a >= b - 1e-7 for a, b in pairwise(parts))  # they are ranked in float32
    monkeypatch.setattr(removal, "BLOCK", 10)
    monkeypatch.setattr(removal, "KEPT", 0)
    few = explain(net, graph, 7, instances=8)
    for a, b in zip(few.details.instances, every.details.instances, strict=False):
        assert a.parts[few.label] == pytest.approx(b.parts[few.label])  # ties may fall either way
        assert a.attention == pytest.approx(b.attention, rel=1e-3)


def test_another_label_ranks_by_its_own_logit(graph: Graph) -> None:
    net = untrained(graph)
    other = min((found := explain(net, graph, 7)).logits, key=found.logits.get)
    parts = [
        i.parts[other]
        for i in explain(net, graph, 7, instances=EVERY, label=other).details.instances
    ]
    assert parts == sorted(parts, reverse=True)
    with pytest.raises(HanmeError, match=r"unknown label 'Opera'; there are \w+"):
        explain(net, graph, 7, label="Opera")


def test_predicted_labels_follow_the_decision_rule(graph: Graph) -> None:
    net = untrained(graph)
    with torch.no_grad():
        net.head.bias -= 100
    assert Explainer(net, graph, Decision(rule="half")).explain(7).predicted == ()
    assert len(Explainer(net, graph).explain(7).predicted) == 1


def test_one_label_per_node(graph: Graph) -> None:
    graph = replace(graph, y=graph.y.argmax(1))
    found = explain(untrained(graph), graph, 7)
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert found.predicted == (found.label,)


def test_a_node_without_instances(graph: Graph) -> None:
    for step in (("movie", "to", "actor"), ("movie", "to", "director")):
        graph.links[step] = graph.links[step][:, graph.links[step][0] != 7]
    found = explain(untrained(graph), graph, 7)
    assert found.details.instances == ()
    assert set(found.details.counts.values()) == {0}


def test_a_graph_without_names_and_labels(graph: Graph) -> None:
    net = untrained(graph)
    data = graph.to_hetero()
    for node_type in data.node_types:
        del data[node_type].name
    del data["movie"].label_names
    found = explain(net, Graph.from_hetero(data), 7)
    assert found.node == "movie 7"
    assert list(found.logits) == ["0", "1", "2", "3", "4"]


def test_nodes_by_id_name_and_number(graph: Graph) -> None:
    net = untrained(graph)
    names = graph.targets.names = list(graph.targets.names)
    graph.targets.ids = [f"tt{i}" for i in range(98)] + ["5", names[3]]
    explainer = Explainer(net, graph)
    assert explainer.explain("tt7").number == 7
    assert explainer.explain(5).number == 5
    assert explainer.explain("5").number == 98  # an id before a number
    with pytest.raises(HanmeError, match="no node has that id or name"):
        explainer.explain("6")  # a number in words is one where there are no ids
    assert explainer.explain(names[3]).number == 99  # an id before a name
    assert explainer.explain(98).id == "5"
    name = names[8]
    assert explainer.explain(name).number == 8
    for wrong_name in (name.upper().replace(" ", "_"), "Nobody's Film"):
        with pytest.raises(HanmeError, match=r"no node has that id or name$"):
            explainer.explain(wrong_name)
    for wrong in (100, -1):
        with pytest.raises(HanmeError, match="there are 100, numbered from 0"):
            explainer.explain(wrong)
    names[20] = names[21] = "Twins"
    with pytest.raises(HanmeError, match=r"2 nodes have that name; choose one by id: tt20, tt21"):
        explainer.explain("Twins")


def test_mistakes(graph: Graph) -> None:
    net = untrained(graph)
    with pytest.raises(HanmeError, match="at least 1"):
        explain(net, graph, 1, instances=0)
    gat = GAT(graph.metadata(), "movie", 5, hidden_channels=16, heads=2)
    with pytest.raises(
        HanmeError, match="model GAT cannot be explained: it attends to no metapath instances"
    ):
        explain(gat, graph, 1)
    side_by_side = untrained(graph, fusion="concat")
    with pytest.raises(HanmeError, match=r"its fusion, Concat, is not a weighted sum"):
        explain(side_by_side, graph, 1)


def test_deterministic_with_dropout_on(graph: Graph) -> None:
    net = untrained(graph, dropout=0.9).train()
    assert explain(net, graph, 7) == explain(net, graph, 7)
