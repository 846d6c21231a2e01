"""Whether numbers are finite, with one answer for a whole tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def all_finite(values: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether a tensor (*S) holds neither NaN nor infinity; summed in ``dtype``, or its own.

    One sum is NaN or infinite if any number is; only then is every number checked.
    """
    return bool(torch.isfinite(values.sum(dtype=dtype)).cpu()) or bool(torch.isfinite(values).all().cpu())
