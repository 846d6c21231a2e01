"""Routers: small networks that compute the weights by which tasks are mixed, and their initial values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

Router = Mapping[str, Tensor]


def apply_layers(router: Router, rows: Tensor, activate: Callable[[Tensor], Tensor], prefix: str = "") -> Tensor:
    """The outputs (n, ..., K) of one or two linear layers, {prefix}fc1 and {prefix}fc2, for rows (n, ..., d).

    ``activate`` maps the hidden rows (n, ..., h) between the two layers to rows of the same shape.
    """
    hidden = nnf.linear(rows, router[f"{prefix}fc1.weight"], router[f"{prefix}fc1.bias"])
    if f"{prefix}fc2.weight" not in router:
        return hidden
    return nnf.linear(activate(hidden), router[f"{prefix}fc2.weight"], router[f"{prefix}fc2.bias"])


def sample_normal(seeds: list[int], deviation: float, shape: tuple[int, ...]) -> Tensor:
    """Normal random numbers (*shape) in float64, with mean 0 and this standard deviation, determined by ``seeds``."""
    return torch.from_numpy(np.random.default_rng(seeds).normal(0.0, deviation, shape))


def sample_uniform(seeds: list[int], bound: float, shape: tuple[int, ...]) -> Tensor:
    """Uniform random numbers (*shape) in float64 in [−bound, bound), determined by ``seeds``."""
    return torch.from_numpy(np.random.default_rng(seeds).uniform(-bound, bound, shape))


def router_shapes(width: int, tasks: int, depth: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a block's router with two layers, one layer, or none (a constant), by name."""
    if depth == 0:
        return {"bias": (tasks,)}
    if depth == 1:
        return {"fc1.weight": (tasks, width), "fc1.bias": (tasks,)}
    return {"fc1.weight": (width, width), "fc1.bias": (width,), "fc2.weight": (tasks, width), "fc2.bias": (tasks,)}


def last_bias_name(depth: int) -> str:
    """The name of the bias that is added last."""
    return f"fc{depth}.bias" if depth else "bias"


def route_images(router: Router, block: int, tokens: Tensor) -> Tensor:
    """A block's weights (n, K) for images: the mean of its router's outputs over their tokens (n, T, w)."""
    number = block if any(name.startswith(f"{block}.") for name in router) else 0  # one router may serve all blocks
    if f"{number}.bias" in router:
        return router[f"{number}.bias"].expand(len(tokens), -1)
    return apply_layers(router, tokens, torch.relu, f"{number}.").mean(dim=1)
