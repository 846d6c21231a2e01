"""A pretend accelerator: the device "pretend", whose tensors refuse to meet the host's or to be read there.

Its numbers lie in host memory and the CPU computes them, so results can be compared exactly. But as on a real one,
every operation on tensors of both sides fails, and so does everything that needs a number on the host: ``item``,
``float``, ``bool``, ``tolist``, ``numpy``, ``torch.equal``, printing. Only ``to``, ``cpu`` and ``copy_`` cross, and
they are counted. Real accelerators allow some of this and wait for each number, which is what should not happen.

The device is registered with torch when this file is imported, which must be before the first backward pass of the
process: torch starts a thread for every device then. Torch has one kind of accelerator at a time, and pins memory for
that one, so test files that import this file are skipped where there is a CUDA GPU; the GPU itself is tested there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

if torch.cuda.is_available():
    pytest.skip("a pretend accelerator beside a CUDA GPU breaks the GPU's pinned memory", allow_module_level=True)

NAME = "pretend"
READS = ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::allclose")
COPIES = ("aten::copy_", "aten::_to_copy")


@dataclass
class PretendedMemory:
    """What crossed between the two sides, as numbers of scalars, and how much memory the device pretends to have."""

    free: int = 1 << 34  # bytes, as the device states them
    largest: int = 1 << 62  # bytes of one allocation above which memory is out
    to_device: list[int] = field(default_factory=list)
    to_host: list[int] = field(default_factory=list)
    refused: int = 0  # allocations


NOW = PretendedMemory()


@contextmanager
def pretend_device(**memory: int) -> Iterator[PretendedMemory]:
    """What is copied while the block runs; ``memory`` sets the numbers of ``PretendedMemory``."""
    global NOW  # noqa: PLW0603 - torch's kernels have no other place to look
    before, NOW = NOW, PretendedMemory(**memory)
    try:
        yield NOW
    finally:
        NOW = before


class PretendTensor(Tensor):
    """A tensor of the device, around the host's tensor that holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> PretendTensor:
        if inner.untyped_storage().nbytes() > NOW.largest:
            NOW.refused += 1
            raise torch.OutOfMemoryError(f"The pretend device is out of memory ({inner.nbytes} bytes).")
        made: PretendTensor = Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip
        made.inner = inner
        return made

    def __repr__(self, **_: Any) -> str:
        raise _refusal("print")

    def tolist(self) -> Any:
        raise _refusal("tolist")

    def numpy(self, **_: Any) -> Any:
        raise _refusal("numpy")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # elsewhere, what consists of other operations never comes here
            parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        with torch.inference_mode(False):  # views that are made in it cannot be wrapped
            return _compute(func, args, kwargs)


def _compute(func: Any, args: Any, kwargs: Any) -> Any:
    name = func._schema.name
    if name in READS:
        raise _refusal(name)
    if name in COPIES:
        return _count_copy(func, args, kwargs)
    _check_sides(name, (args, kwargs))
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    return _find_written(func, args, kwargs, tree_map(_wrap, result))


def _refusal(name: str) -> RuntimeError:
    return RuntimeError(f"{name} reads a tensor of the pretend device on the host; copy it there first")


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, PretendTensor) else value


def _wrap(value: Any) -> Any:
    return PretendTensor(value) if isinstance(value, Tensor) else value


def _check_sides(name: str, arguments: Any) -> None:
    def check(value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, PretendTensor):
            raise RuntimeError(f"{name} of a tensor of the pretend device and one of the host {tuple(value.shape)}")

    tree_map(check, arguments)


def _find_written(func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The very tensors that an operation wrote into, where it gives them back."""
    schema = func._schema
    if not schema.is_mutable:
        return result
    given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    written = [given[a.name] for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return written[0] if len(written) == 1 else tuple(written)


def _count_copy(func: Any, args: Any, kwargs: Any) -> Any:
    """``copy_`` and ``_to_copy``, the two operations that cross; what crosses is counted."""
    if func._schema.name == "aten::_to_copy":
        device = kwargs.get("device")
        if device is None or device.type == NAME:
            kwargs = {name: value for name, value in kwargs.items() if name != "device"}
            return PretendTensor(func(_inner(args[0]), **kwargs))
        NOW.to_host.append(args[0].numel())
        return func(_inner(args[0]), **kwargs)
    return _copy(args[0], args[1])


def _copy(into: Tensor, source: Tensor) -> Tensor:
    if isinstance(into, PretendTensor) != isinstance(source, PretendTensor):
        (NOW.to_device if isinstance(into, PretendTensor) else NOW.to_host).append(source.numel())
    _inner(into).copy_(_inner(source))
    return into


class _Module(_DummyBackendModule):
    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return NOW.free, NOW.free

    def empty_cache(self) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Asked for by checkpointed passes, on whatever device they are, once this one is registered."""
        return [torch.float16, torch.bfloat16]


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return PretendTensor(torch.empty(size, dtype=dtype))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return PretendTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    return _copy(into, source)  # of ``torch.tensor``, which does not dispatch to Python


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
_LIBRARY = torch.library.Library("aten", "IMPL")
_LIBRARY.impl("empty.memory_format", _empty, "PrivateUse1")
_LIBRARY.impl("empty_strided", _empty_strided, "PrivateUse1")
_LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")
