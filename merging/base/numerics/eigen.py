"""Eigenvalues and eigenvectors of symmetric matrices, all of them or only the largest.

On the CPU, scipy's LAPACK decomposes large matrices: it can compute only the requested vectors, and is faster than
torch's LAPACK on processors not made by Intel. This module calls it directly, because ``scipy.linalg.eigh`` holds the
interpreter's lock and would make layers wait for each other. LAPACK runs on one thread, and several matrices are
decomposed at once. So the bytes of a result do not depend on the number of cores.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LAPACK_MIN_SIDE = 640  # smallest side of a matrix that scipy's LAPACK decomposes
PARTIAL_RATIO = 4  # up to a quarter of the vectors can be computed alone more cheaply than with all others


def computes_only_part(size: float, count: int | None) -> bool:
    """Whether ``count`` of ``size`` eigenvectors are computed without the others."""
    return count is not None and size >= LAPACK_MIN_SIDE and PARTIAL_RATIO * count <= size


def decompose_symmetric(matrix: Tensor, count: int | None = None, *, overwrite: bool = False) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), ascending, and orthonormal eigenvectors (n, r) of a symmetric matrix (n, n).

    Only the lower triangle of the matrix is read. With ``count``, the result is the r = min(count, n) largest pairs.
    ``overwrite`` allows the matrix to be overwritten, which saves the memory of a copy.

    Raises:
        torch.linalg.LinAlgError: the decomposition does not converge.
    """
    size = len(matrix)
    uses_lapack = (
        matrix.device.type == "cpu" and matrix.dtype == torch.float64 and size >= LAPACK_MIN_SIDE and count != 0
    )
    some = count if computes_only_part(size, count) else None
    pair = _decompose_by_lapack(matrix, some, overwrite) if uses_lapack else None
    values, vectors = torch.linalg.eigh(matrix) if pair is None else pair
    start = 0 if count is None else max(len(values) - count, 0)
    return values[start:], vectors[:, start:]


def _decompose_by_lapack(matrix: Tensor, count: int | None, overwrite: bool) -> tuple[Tensor, Tensor] | None:
    """All eigenpairs (n,), (n, n), or the ``count`` largest (r,), (n, r); None if LAPACK fails."""
    if not torch.isfinite(matrix.sum()):
        return None
    in_place = overwrite and matrix.is_contiguous()
    target = matrix if in_place else matrix.clone(memory_format=torch.contiguous_format)
    # Its lower triangle is LAPACK's upper one.
    pair = _compute_all_pairs(target) if count is None else _compute_largest_pairs(target, count)
    if pair is None and in_place:  # nothing is left for another routine
        raise torch.linalg.LinAlgError("The eigen-decomposition did not converge.")  # type: ignore[attr-defined]
    return pair


def _compute_all_pairs(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    """All eigenpairs by divide and conquer (dsyevd), which overwrites the matrix with the vectors."""
    size, values = len(matrix), matrix.new_empty(len(matrix))
    error_number = call_lapack("dsyevd", "V", "U", size, matrix, size, values)
    return None if error_number else (values, matrix.T)


def _compute_largest_pairs(matrix: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    """The ``count`` largest eigenpairs by bisection and inverse iteration (dsyevr)."""
    size, values = len(matrix), matrix.new_empty(len(matrix))
    vectors, support = matrix.new_empty(count, size), torch.empty(2 * count, dtype=torch.int32)
    selection = (0.0, 0.0, size - count + 1, size, 0.0)  # no interval of values; 1-based indices; the best tolerance
    found_count = ctypes.c_int()
    error_number = call_lapack(
        "dsyevr", "V", "I", "U", size, matrix, size, *selection, found_count, values, vectors, size, support
    )
    return None if error_number or found_count.value != count else (values[:count], vectors.T)


def call_lapack(name: str, *arguments: Any) -> int:
    """Call a LAPACK routine whose last arguments are two workspaces and an error number; return that number."""
    routine, info = _load_routine(name), ctypes.c_int()
    work, integers = torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.int32)
    for sizes in ((-1, -1), None):  # the first call asks for the sizes of the workspaces
        lengths = sizes or (len(work), len(integers))
        all_arguments = (*arguments, work, lengths[0], integers, lengths[1], info)
        addresses = [_address_of(argument) for argument in all_arguments]
        routine(*addresses)
        if sizes:
            work = torch.empty(int(work), dtype=torch.float64)
            integers = torch.empty(int(integers), dtype=torch.int32)
    return info.value


def _address_of(argument: Any) -> Any:
    """The address of an argument; LAPACK takes all arguments by reference."""
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, str):
        return ctypes.c_char_p(argument.encode())
    if isinstance(argument, ctypes.c_int):
        return ctypes.byref(argument)
    return ctypes.byref(ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_double(argument))


@cache
def _load_routine(name: str) -> Callable[..., None]:
    """One of scipy's LAPACK routines, which runs without the interpreter's lock."""
    from scipy.linalg import cython_lapack

    _limit_scipy_threads()
    capsule, python = cython_lapack.__pyx_capi__[name], ctypes.pythonapi
    python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    signature = python.PyCapsule_GetName(capsule)
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(python.PyCapsule_GetPointer(capsule, signature))


def _limit_scipy_threads() -> None:
    """Limit scipy's own linear algebra library to one thread; numpy and torch have other libraries."""
    from threadpoolctl import ThreadpoolController

    for library in ThreadpoolController().lib_controllers:
        if any(part.startswith("scipy") for part in Path(library.filepath).parts[:-1]):
            library.set_num_threads(1)
