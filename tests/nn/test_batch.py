"""Batches on devices."""

import torch

from hanme.nn import Batch


def test_a_graph_is_copied_once_to_each_device(monkeypatch) -> None:
    x, links = torch.ones(2, 3), torch.tensor([[0], [1]])
    copied = []

    def to(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        copied.append(device)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "to", to)
    batch = Batch({"a": x}, {("a", "to", "a"): links}, labels=x.clone())
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    one, again, other = (batch.to(device) for device in (first, first, second))
    assert copied == [first] * 3 + [second] * 3
    assert one.x_dict["a"] is again.x_dict["a"]
    assert one.x_dict["a"] is not other.x_dict["a"]
    assert batch.to(torch.device("cpu")) is batch
