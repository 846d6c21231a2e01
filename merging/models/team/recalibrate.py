"""Measures the running statistics of batch norms again; in a merged network they are means over its experts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.nn import Module


def recalibrate(model: Module, batches: Iterable[Any]) -> Module:
    """The same module, with the statistics of its batch norms measured on the batches.

    A batch is a tensor that the module accepts, or a mapping that is passed as keywords.
    """
    norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._NormBase)]
    training, momenta = {module: module.training for module in model.modules()}, [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over all batches
    model.eval()  # dropout stays off
    for norm in norms:
        norm.train()
    with torch.no_grad():
        for batch in batches:
            model(**batch) if isinstance(batch, Mapping) else model(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    for module, mode in training.items():
        module.training = mode
    return model
