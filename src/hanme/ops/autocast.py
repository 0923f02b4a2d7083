"""Where autocast hands over narrow numbers: sums of exponentials want float32."""

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Return a tensor in float32 if it is in a narrower type because of autocast."""
    narrow = x.dtype in (torch.bfloat16, torch.float16)
    return x.float() if narrow and torch.is_autocast_enabled(x.device.type) else x
