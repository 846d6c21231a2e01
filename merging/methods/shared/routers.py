"""Routers: small networks that say by which weights the tasks are mixed, as named tensors and their first values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

Router = Mapping[str, Tensor]


def layers(router: Router, rows: Tensor, activate: Callable[[Tensor], Tensor], at: str = "") -> Tensor:
    """Rows (..., d) through one or two linear layers, {at}fc1 and {at}fc2, with an activation between them."""
    out = nnf.linear(rows, router[f"{at}fc1.weight"], router[f"{at}fc1.bias"])
    if f"{at}fc2.weight" not in router:
        return out
    return nnf.linear(activate(out), router[f"{at}fc2.weight"], router[f"{at}fc2.bias"])


def normal(address: list[int], spread: float, shape: tuple[int, ...]) -> Tensor:
    """Normal numbers in float64, drawn at an address."""
    return torch.from_numpy(np.random.default_rng(address).normal(0.0, spread, shape))


def uniform(address: list[int], bound: float, shape: tuple[int, ...]) -> Tensor:
    """Numbers in float64 from −bound to bound, drawn at an address."""
    return torch.from_numpy(np.random.default_rng(address).uniform(-bound, bound, shape))
