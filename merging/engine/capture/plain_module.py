"""Checks of modules whose layer inputs can be captured, and of the batches that pass through them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from merging.base.errors import NeedsError

SPLIT_WRAPPERS = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"}
QUANTIZED_PACKAGES = ("bitsandbytes", "torch.ao.nn.quantized", "auto_gptq", "gptqmodel", "awq", "torchao")


def check_plain(model: Any, call: str) -> nn.Module:
    """The module, checked: its calls use the weights themselves.

    Raises:
        NeedsError: it is not a module, or is compiled, quantized, split over processes, or without numbers.
    """
    if not isinstance(model, nn.Module):
        raise NeedsError(f"{call}() needs a torch.nn.Module; got {type(model).__name__}.")
    class_names = {type(module).__name__ for module in model.modules()}
    compiled = any(getattr(module, "_compiled_call_impl", None) is not None for module in model.modules())
    if compiled or "OptimizedModule" in class_names:
        raise NeedsError(f"{call}() needs the plain module: undo torch.compile first.")
    if class_names & SPLIT_WRAPPERS or any(type(weight).__name__ == "DTensor" for weight in model.parameters()):
        raise NeedsError(f"{call}() needs the plain module: this one is split over processes; take its .module.")
    packages = {type(module).__module__ for module in model.modules()}
    is_quantized = any(package.startswith(QUANTIZED_PACKAGES) for package in packages)
    if is_quantized or not all(weight.is_floating_point() for weight in model.parameters()):
        raise NeedsError(f"{call}() needs the plain module: this one is quantized; load it with full numbers.")
    if any(weight.is_meta for weight in model.parameters()):
        raise NeedsError(f"{call}() needs a module with numbers; this one is on torch's meta device.")
    return model


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without torch's fused attention, which hides the layers; restores both settings afterwards."""
    training = {module: module.training for module in model.modules()}
    was_fastpath_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    model.eval()
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fastpath_enabled)
        for module, was_training in training.items():
            module.training = was_training


def check_batches(model: nn.Module, batches: Iterable[Any]) -> Iterator[Any]:
    """Every batch on the module's device, a tensor (n, ...) or a mapping of keywords.

    Raises:
        NeedsError: a batch is something else.
    """
    if isinstance(batches, Tensor | Mapping | str) or not isinstance(batches, Iterable):
        raise NeedsError(f"batches is an iterable of batches, such as a list; got {type(batches).__name__}.")
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    for batch in batches:
        if isinstance(batch, Tensor):
            yield batch.to(device)
        elif isinstance(batch, Mapping):
            yield {key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()}
        else:
            raise NeedsError(
                f"A batch is a tensor, or a mapping that is passed as keywords; got {type(batch).__name__}."
            )


def count_examples(batch: Any) -> int:
    """The number of examples in a batch: the length of its first tensor."""
    if isinstance(batch, Tensor):
        tensors = [batch]
    else:
        tensors = [value for value in batch.values() if isinstance(value, Tensor) and value.ndim]
    return len(tensors[0]) if tensors and tensors[0].ndim else 0


def run_batch(model: nn.Module, batch: Any) -> Any:
    """The module's output for a batch."""
    return model(batch) if isinstance(batch, Tensor) else model(**batch)
