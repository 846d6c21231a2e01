"""torch's tensors as pickles describe them: the position of their numbers in the file, shapes and strides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from merging.base.errors import CheckpointError
from merging.models.formats.byte_range import ByteRange
from merging.models.formats.torch_pickle.interpreter import Name, Persistent, PickledCall
from merging.models.tensor_info import DTYPE_NAMES, MAX_DIMENSIONS, TensorInfo, dtype_name, read_span

STORAGE_DTYPES = {names.storage: dtype for dtype, names in DTYPE_NAMES.items()}
STORAGE_DTYPES |= {"UntypedStorage": torch.uint8, "_UntypedStorage": torch.uint8}
STORAGE_MODULES = ("torch", "torch.cuda", "torch.storage")
DTYPES = {str(dtype): dtype for dtype in DTYPE_NAMES}
# Functions that build a tensor from a storage, its offset, its shape and its strides.
PLAIN_BUILDERS = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"}
# The same with a dtype as seventh argument.
TYPED_BUILDER = "torch._utils._rebuild_tensor_v3"
# Calls whose first argument is the tensor.
PARAMETER_WRAPPERS = {
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter",
}  # fmt: skip
# Calls whose first and third arguments are the function that builds the tensor and its arguments.
SUBCLASS_WRAPPERS = {
    "torch._tensor._rebuild_from_type", "torch._tensor._rebuild_from_type_v2", "torch.tensor._rebuild_from_type",
}  # fmt: skip
# Part of a function's name: the kind of tensor that it builds, as messages call it.
UNSUPPORTED_KINDS = {"sparse": "sparse", "qtensor": "quantized", "nested": "nested", "meta": "without data"}
COMPLEX_STORAGE_DTYPES = {"ComplexFloatStorage": torch.complex64, "ComplexDoubleStorage": torch.complex128}
MAX_NESTED_WRAPPERS = 8
PLAIN_ARGUMENTS, TYPED_ARGUMENTS = 4, 7  # least numbers of arguments of the functions that build tensors


@dataclass(frozen=True, slots=True)
class Storage:
    """A flat sequence of numbers of one dtype in the file."""

    byte_range: ByteRange
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in the file: a view of a storage. ``offset`` and ``stride`` count numbers, not bytes."""

    storage: Storage
    offset: int
    info: TensorInfo
    stride: tuple[int, ...]

    @property
    def extent(self) -> int:
        """The count of stored numbers from the tensor's first to its last number, both included."""
        if not self.info.numel:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.info.shape, self.stride, strict=True))

    @property
    def contiguous(self) -> bool:
        """Whether the numbers are stored in the order of the shape."""
        expected = 1
        for size, step in zip(reversed(self.info.shape), reversed(self.stride), strict=True):
            if size != 1 and step != expected:
                return False
            expected *= size
        return True

    def read_flat(self, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) in the order of the shape, (stop - start,)."""
        if self.contiguous:
            return self._span(self.offset + start, stop - start)
        strided = self._span(self.offset, self.extent).as_strided(self.info.shape, self.stride)
        return strided.reshape(-1)[start:stop].clone()

    def _span(self, first: int, numel: int) -> Tensor:
        window, dtype = self.storage.byte_range, self.info.dtype
        return read_span(window.descriptor, window.start + first * dtype.itemsize, numel, dtype, window.name)


FindStorage = Callable[
    [Any, str], Storage
]  # (pickled reference, label of its tensor) -> the storage that the reference names


def is_tensor(pickled_object: Any) -> bool:
    """Whether an inert object describes a tensor, which may be of an unsupported kind."""
    if not isinstance(pickled_object, PickledCall):
        return False
    name = str(pickled_object.name)
    return name in PARAMETER_WRAPPERS or name in SUBCLASS_WRAPPERS or name.startswith("torch._utils._rebuild")


def find_complex_dtype(name: Any) -> torch.dtype | None:
    """The dtype of a storage class of complex numbers; None for other classes."""
    return COMPLEX_STORAGE_DTYPES.get(name.name) if isinstance(name, Name) and name.module in STORAGE_MODULES else None


def find_storage_dtype(name: Any, label: str) -> torch.dtype:
    """The dtype of a storage class; raises CheckpointError if its numbers cannot be merged."""
    if isinstance(name, Name) and name.module in STORAGE_MODULES:
        if name.name in STORAGE_DTYPES:
            return STORAGE_DTYPES[name.name]
        if name.name.endswith("Storage"):
            dtype = find_complex_dtype(name)
            kind = f"{dtype_name(dtype)} (complex numbers)" if dtype else repr(name.name[:40])
            raise CheckpointError(f"{label} is of type {kind}, which cannot be merged; convert it.")
    raise CheckpointError(f"{label} has a storage of an unknown kind; the file is damaged.")


def locate_tensor(pickled_tensor: PickledCall, label: str, find_storage: FindStorage) -> StoredTensor:
    """The stored tensor that a recorded call describes; ``label`` names it in messages.

    Raises:
        CheckpointError: the tensor is sparse, quantized or of another kind that cannot be merged, reaches past its
            storage, or repeats numbers by its strides.
    """
    call = _unwrap(pickled_tensor, label)
    name, args = str(call.name), call.args
    if name not in PLAIN_BUILDERS and name != TYPED_BUILDER:
        kind = next((word for part, word in UNSUPPORTED_KINDS.items() if part in name), "of an unusual kind")
        raise CheckpointError(f"{label} is {kind}, which cannot be merged; save it as a plain tensor.")
    if not isinstance(args, tuple) or len(args) < (TYPED_ARGUMENTS if name == TYPED_BUILDER else PLAIN_ARGUMENTS):
        raise CheckpointError(f"{label} is described in a way that torch does not write; the file is damaged.")
    storage, offset = find_storage(args[0], label), args[1]
    shape, stride = _read_sizes(args[2]), _read_sizes(args[3])
    dtype = _read_dtype(args[6], label) if name == TYPED_BUILDER else storage.dtype
    valid = shape is not None and stride is not None and len(shape) == len(stride) <= MAX_DIMENSIONS
    if shape is None or stride is None or not valid or type(offset) is not int or not 0 <= offset < 2**63:
        raise CheckpointError(f"{label} has an odd shape or strides; the file is damaged.")
    tensor = StoredTensor(storage, offset, TensorInfo(shape, dtype), stride)
    _check_span(tensor, label)
    return tensor


def _unwrap(pickled_tensor: Any, label: str) -> PickledCall:
    """The call that builds a plain tensor, without the calls around it that wrap it as a parameter or a subclass."""
    for _ in range(MAX_NESTED_WRAPPERS):
        name = str(pickled_tensor.name) if isinstance(pickled_tensor, PickledCall) else ""
        if name in PARAMETER_WRAPPERS and isinstance(pickled_tensor.args, tuple) and pickled_tensor.args:
            pickled_tensor = pickled_tensor.args[0]
        elif name in SUBCLASS_WRAPPERS and isinstance(pickled_tensor.args, tuple) and len(pickled_tensor.args) >= 3:
            function, _, args, *_ = pickled_tensor.args
            pickled_tensor = PickledCall(function, args) if isinstance(function, Name) else None
        elif isinstance(pickled_tensor, PickledCall):
            return pickled_tensor
        else:
            break
    raise CheckpointError(f"{label} is described in a way that torch does not write; the file is damaged.")


def _check_span(tensor: StoredTensor, label: str) -> None:
    """Raise CheckpointError if a tensor reaches past its storage, or if two of its entries are the same stored number.

    Entries differ if every stride is larger than the span of all smaller strides together.
    """
    shape, available = tensor.info.shape, tensor.storage.byte_range.size // tensor.info.dtype.itemsize
    if tensor.offset + tensor.extent > available:
        raise CheckpointError(f"{label} of shape {list(shape)} reaches past its storage of {available:,} numbers.")
    span = 0
    pairs = zip(tensor.stride, shape, strict=True)
    for step, size in sorted((step, size) for step, size in pairs if size > 1):
        if step <= span and tensor.info.numel:
            raise CheckpointError(
                f"{label} of shape {list(shape)} repeats its {available:,} stored numbers by its strides; "
                "save it with .contiguous()."
            )
        span += (size - 1) * step


def _read_sizes(pickled_sizes: Any) -> tuple[int, ...] | None:
    if (
        isinstance(pickled_sizes, PickledCall)
        and str(pickled_sizes.name) == "torch.Size"
        and isinstance(pickled_sizes.args, tuple)
        and pickled_sizes.args
    ):
        pickled_sizes = pickled_sizes.args[0]
    if not isinstance(pickled_sizes, (tuple, list)) or not all(
        type(v) is int and 0 <= v < 2**48 for v in pickled_sizes
    ):
        return None
    return tuple(pickled_sizes)


def _read_dtype(name: Any, label: str) -> torch.dtype:
    dtype = DTYPES.get(str(name)) if isinstance(name, Name) else None
    if dtype is None:
        raise CheckpointError(f"{label} is of type {str(name)[:40]!r}, which cannot be merged; convert it.")
    return dtype


def read_storage_reference(pickled_reference: Any, label: str) -> tuple[Any, str, int, Any]:
    """(storage class, key, numel, view) from torch's reference to a storage; the view is None if it has none."""
    fields = pickled_reference.id if isinstance(pickled_reference, Persistent) else None
    if not isinstance(fields, tuple) or len(fields) < 5 or fields[0] != "storage":
        raise CheckpointError(f"{label} has no storage; the file is damaged.")
    _, storage_class, key, _, numel, *view_fields = fields
    if not isinstance(key, str) or type(numel) is not int or not 0 <= numel < 2**48:
        raise CheckpointError(f"{label} has an odd storage; the file is damaged.")
    return storage_class, key, numel, view_fields[0] if view_fields else None
