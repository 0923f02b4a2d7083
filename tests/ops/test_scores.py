"""Node scores: compiled code against the formula."""

import pytest
import torch
from torch.autograd import gradcheck

from hanme.ops import head_dots, tanh_scores


def arguments(nodes, heads, channels, dtype=torch.float64):
    generator = torch.Generator().manual_seed(nodes + heads)
    shapes = (nodes, heads, channels), (2, heads, channels, 5), (2, heads, 5), (heads, channels)
    return [
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    ]


def formula(h, weight, v):
    return torch.stack(
        [
            torch.stack([torch.tanh(h[:, k] @ w[k]) @ u[k] for k in range(h.size(1))], 1)
            for w, u in zip(weight, v, strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("nodes", "heads", "channels"), [(0, 8, 4), (1, 8, 1), (300, 16, 7), (9, 3, 4), (2, 1, 2)]
)
def test_equal_the_formula_with_gradients(nodes, heads, channels):
    h, weight, v, a = arguments(nodes, heads, channels)
    pairs = (
        (tanh_scores(h, weight, v), formula(h, weight, v), (h, weight, v)),
        (head_dots(h, a), torch.einsum("nkd,kd->nk", h, a), (h, a)),
    )
    for ours, theirs, inputs in pairs:
        torch.testing.assert_close(ours, theirs)
        direction = torch.randn_like(theirs)
        for x, y in zip(
            torch.autograd.grad(ours, inputs, direction),
            torch.autograd.grad(theirs, inputs, direction),
            strict=True,
        ):
            torch.testing.assert_close(x, y)


def test_gradcheck():
    h, weight, v, a = arguments(5, 8, 3)
    assert gradcheck(tanh_scores, (h, weight, v))
    assert gradcheck(head_dots, (h, a))


def test_extreme_scores_stay_finite():
    h = torch.tensor([-1e4, -1e-6, 0.0, 1e-6, 1e4]).expand(1, 8, 5).transpose(0, 2).contiguous()
    scores = tanh_scores(h, torch.ones(1, 8, 1, 1), torch.ones(1, 8, 1))[0]
    torch.testing.assert_close(scores, torch.tanh(h[..., 0]), atol=1e-7, rtol=0)


def test_any_number_of_threads_gives_the_same_result():
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            h, weight, v, a = arguments(1000, 16, 8, torch.float32)
            total = tanh_scores(h, weight, v).square().sum() + head_dots(h, a).square().sum()
            found.append(torch.autograd.grad(total, (h, weight, v, a)))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))
