import pytest
import torch

from hanme.datasets import METAPATHS, planted
from hanme.errors import HanmeError
from hanme.explain import explain
from hanme.nn import HAN, HANME


@pytest.mark.parametrize(
    ("model", "options"), [(HANME, {}), (HANME, {"encoder": "direct"}), (HAN, {})]
)
def test_names_the_instances_attended_to_most(model: type, options: dict) -> None:
    data = planted(movies=100)
    net = model(data.metadata(), "movie", METAPATHS["planted"], 5, heads=2, **options)
    found = explain(net, data, 7, top=3)
    assert found.node == data["movie"].name[7]
    assert sum(found.metapaths.values()) == pytest.approx(1)
    weights = [instance.weight for instance in found.instances]
    assert len(weights) == 3
    assert weights == sorted(weights, reverse=True)
    for instance in found.instances:
        assert instance.nodes[0] == found.node
        assert len(instance.nodes) == (2 if model is HAN else 3)
        assert sum(instance.hops) == pytest.approx(1)
    assert " <- " in str(found)
    assert explain(net, data, found.node, top=3) == found


def test_all_instances_together_have_all_the_attention() -> None:
    data = planted(movies=100)
    net = HANME(data.metadata(), "movie", METAPATHS["planted"], 5, heads=2)
    found = explain(net, data, 7, top=10**6)
    assert sum(instance.weight for instance in found.instances) == pytest.approx(1)


def test_unknown_nodes() -> None:
    data = planted(movies=100)
    net = HANME(data.metadata(), "movie", METAPATHS["planted"], 5, heads=2)
    with torch.no_grad():
        net(data)
    with pytest.raises(HanmeError, match="no node has that name"):
        explain(net, data, "Nobody's Film")
    with pytest.raises(HanmeError, match="there are 100"):
        explain(net, data, 100)
    with pytest.raises(HanmeError, match="at least 1"):
        explain(net, data, 1, top=0)
    assert net.training
    data["movie"].name[3] = data["movie"].name[4]
    with pytest.raises(HanmeError, match=r"2 nodes have that name; say which by number: \[3, 4\]"):
        explain(net, data, data["movie"].name[3])
