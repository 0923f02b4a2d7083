"""GAT and MAGNA asked for some roots: the results of the whole graph, from the nodes in reach."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from graph.test_chain import asked
from hanme.nn import GAT, MAGNA
from hanme.nn.batch import Batch

SIZES = {"hidden_channels": 4, "heads": 2}
models = st.sampled_from(
    [
        lambda *given: GAT(*given, **SIZES, layers=1),
        lambda *given: GAT(*given, **SIZES, layers=2, residual=True),
        lambda *given: MAGNA(*given, **SIZES, layers=1, hops=2),
        lambda *given: MAGNA(*given, **SIZES, layers=2, hops=1),
    ]
)


def gradients(logits: Tensor, model: nn.Module, leaves: list[Tensor]) -> list[Tensor]:
    weight = torch.linspace(-1, 1, logits.numel(), dtype=torch.double).view_as(logits)
    total = (logits * weight).sum()
    return list(torch.autograd.grad(total, [*leaves, *model.parameters()], materialize_grads=True))


@settings(max_examples=60, deadline=None)
@given(case=asked(), make=models, sparse=st.booleans(), seed=st.integers(0, 10**6))
def test_some_roots_equal_the_whole_graph_in_values_and_gradients(
    case, make, sparse: bool, seed: int
) -> None:
    data, _, roots = case
    torch.manual_seed(seed)
    x_dict = {t: torch.randn(data[t].num_nodes, 3).double() for t in data.node_types}
    leaves = [] if sparse else [x.requires_grad_() for x in x_dict.values()]
    x_dict = {t: x.to_sparse_csr() if sparse else x for t, x in x_dict.items()}
    model = make(data.metadata(), "a", 2).double().eval()
    whole = model(Batch(x_dict, data.edge_index_dict))[roots]
    some = model(Batch(x_dict, data.edge_index_dict, roots))
    torch.testing.assert_close(some, whole, rtol=0, atol=1e-10)
    grads = [gradients(logits, model, leaves) for logits in (some, whole)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "options"), [(GAT, {"layers": 2}), (MAGNA, {"layers": 1, "hops": 3})]
)
def test_nodes_out_of_reach_are_not_read(model, options: dict) -> None:
    step = ("a", "to", "a")
    path = torch.stack([torch.arange(1, 9), torch.arange(8)])  # 8 -> 7 -> ... -> 0, 3 hops count
    x = torch.randn(9, 3)
    x[6:] = torch.nan
    made = model((["a"], [step]), "a", 2, **SIZES, **options).eval()
    assert made(Batch({"a": x}, {step: path}, torch.tensor([2, 0]))).isfinite().all()
    assert made(Batch({"a": x}, {step: path}, torch.tensor([3]))).isnan().all()
