import torch
import torch_geometric.transforms as T

from graph.test_chain import MOVIES
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


def test_moves_with_the_graph_and_shows_itself() -> None:
    transform = AddMetaPathInstances(["m-a-m"], max_per_root=2)
    assert repr(transform) == "AddMetaPathInstances(['m-a-m'], max_per_root=2)"
    assert transform(MOVIES.clone()).to("meta").metapath_instances["m-a-m"].is_meta
