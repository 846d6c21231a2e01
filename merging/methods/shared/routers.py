"""Routers: small networks that say by which weights the tasks are mixed, as named tensors and their first values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

Router = Mapping[str, Tensor]


def apply_layers(router: Router, rows: Tensor, activate: Callable[[Tensor], Tensor], at: str = "") -> Tensor:
    """Rows (..., d) through one or two linear layers, {at}fc1 and {at}fc2, with an activation between them."""
    out = nnf.linear(rows, router[f"{at}fc1.weight"], router[f"{at}fc1.bias"])
    if f"{at}fc2.weight" not in router:
        return out
    return nnf.linear(activate(out), router[f"{at}fc2.weight"], router[f"{at}fc2.bias"])


def sample_normal(address: list[int], spread: float, shape: tuple[int, ...]) -> Tensor:
    """Normal numbers in float64, drawn at an address."""
    return torch.from_numpy(np.random.default_rng(address).normal(0.0, spread, shape))


def sample_uniform(address: list[int], bound: float, shape: tuple[int, ...]) -> Tensor:
    """Numbers in float64 from −bound to bound, drawn at an address."""
    return torch.from_numpy(np.random.default_rng(address).uniform(-bound, bound, shape))


def router_shapes(width: int, tasks: int, depth: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a block's router with two layers, one, or none: then it is a constant."""
    if depth == 0:
        return {"bias": (tasks,)}
    if depth == 1:
        return {"fc1.weight": (tasks, width), "fc1.bias": (tasks,)}
    return {"fc1.weight": (width, width), "fc1.bias": (width,), "fc2.weight": (tasks, width), "fc2.bias": (tasks,)}


def last_bias_name(depth: int) -> str:
    """The name of the bias that is added last."""
    return f"fc{depth}.bias" if depth else "bias"


def route_images(router: Router, block: int, tokens: Tensor) -> Tensor:
    """A block's weights (n, K) of images: the mean over their tokens (n, T, w) of what its router gives for each."""
    at = block if any(name.startswith(f"{block}.") for name in router) else 0  # one router may serve all blocks
    if f"{at}.bias" in router:
        return router[f"{at}.bias"].expand(len(tokens), -1)
    return apply_layers(router, tokens, torch.relu, f"{at}.").mean(dim=1)
