import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import HeteroData

from graph.test_chain import MOVIES
from hanme.errors import HanmeError
from hanme.transforms import AddMetaPathInstances


def test_stores_node_types_and_ids_and_composes() -> None:
    transform = T.Compose(
        [
            AddMetaPathInstances(["m-a-m"]),
            AddMetaPathInstances([[("m", "to", "a")]]),
            T.Constant(node_types=["m"]),
        ]
    )
    data = transform(MOVIES.clone())
    assert data.metapath_node_types == {"m-a-m": ("m", "a", "m"), "m-a": ("m", "a")}
    assert data.metapath_instances["m-a-m"].shape == (5, 3)
    assert data.metapath_instances["m-a"].tolist() == MOVIES["m", "to", "a"].edge_index.t().tolist()
    assert data["m"].x.size(0) == 4
    assert "metapath_instances" not in MOVIES


def test_samples() -> None:
    data = AddMetaPathInstances(["m-a-m"], max_per_root=1, seed=3)(MOVIES.clone())
    assert data.metapath_instances["m-a-m"][:, 0].tolist() == [0, 1]
    again = AddMetaPathInstances(["m-a-m"], max_per_root=1, seed=3)(MOVIES.clone())
    assert torch.equal(data.metapath_instances["m-a-m"], again.metapath_instances["m-a-m"])


def test_a_sample_of_a_trillion_instances_costs_little() -> None:
    n = 100
    data = HeteroData()
    data["p"].num_nodes = n
    links = torch.cartesian_prod(torch.arange(n), torch.arange(n)).t()
    data["p", "to", "p"].edge_index = links.contiguous()
    path = "-".join(["p"] * 8)  # 100^7 instances per root
    instances = AddMetaPathInstances([path], max_per_root=5)(data).metapath_instances[path]
    assert instances.shape == (5 * n, 8)
    assert instances.max() < n
    with pytest.raises(HanmeError):
        AddMetaPathInstances([path], max_per_root=0)(data)


def test_moves_with_the_graph_and_shows_itself() -> None:
    transform = AddMetaPathInstances(["m-a-m"], max_per_root=2)
    assert repr(transform) == "AddMetaPathInstances(['m-a-m'], max_per_root=2)"
    assert transform(MOVIES.clone()).to("meta").metapath_instances["m-a-m"].is_meta
