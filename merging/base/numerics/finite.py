"""Whether all numbers of a tensor are finite."""

from __future__ import annotations

import torch
from torch import Tensor


def all_finite(values: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether ``values`` (*S), of any shape, hold neither NaN nor infinity.

    The sum, computed in ``dtype`` (default: the dtype of ``values``), is NaN or infinite if any number is. The numbers
    are checked one by one only if the sum is not finite.
    """
    return bool(torch.isfinite(values.sum(dtype=dtype)).cpu()) or bool(torch.isfinite(values).all().cpu())
