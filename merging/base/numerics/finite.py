"""Whether numbers are finite, with one answer for a whole tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def all_finite(values: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether ``values`` (*S), of any shape, hold neither NaN nor infinity.

    Their sum, in ``dtype`` or their own, is NaN or infinite if any number is. Only then is every number checked.
    """
    return bool(torch.isfinite(values.sum(dtype=dtype)).cpu()) or bool(torch.isfinite(values).all().cpu())
