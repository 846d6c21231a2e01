"""Merges on arcs, in joint bases and by ranked chances, written plainly in numpy from their definitions."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
from numpy.random import PCG64DXSM
from numpy.typing import NDArray

Array = NDArray[np.float64]


# --- arcs ------------------------------------------------------------------------------------------------------------


def unit(vector: Array) -> Array:
    length = math.sqrt(float((vector * vector).sum()))
    return vector / length if length else vector


def arc(first: Array, second: Array, t: float, max_cosine: float | None) -> Array:
    """The point between two vectors; without ``max_cosine``, a line only where the sine is below 1e-8."""
    cosine = float((unit(first) * unit(second)).sum())
    angle = math.acos(min(max(cosine, -1.0), 1.0))
    if abs(cosine) > max_cosine if max_cosine is not None else math.sin(angle) < 1e-8:
        return (1 - t) * first + t * second
    return (math.sin((1 - t) * angle) * first + math.sin(t * angle) * second) / math.sin(angle)


def slerp(first: Array, second: Array, t: float = 0.5) -> Array:
    return arc(first.ravel(), second.ravel(), t, 0.9995).reshape(first.shape)


def nuslerp(first: Array, second: Array, t: float = 0.5, vectors: str = "tensor") -> Array:
    if vectors == "tensor" or first.ndim < 2:
        return arc(first.ravel(), second.ravel(), t, None).reshape(first.shape)
    axis = -1 if vectors == "rows" else 0
    first, second = np.moveaxis(first, axis, -1), np.moveaxis(second, axis, -1)
    merged = np.empty_like(first)
    for place in np.ndindex(*first.shape[:-1]):
        merged[place] = arc(first[place], second[place], t, None)
    return np.moveaxis(merged, -1, axis)


def karcher(tensors: list[Array], steps: int = 10, tolerance: float = 1e-5) -> Array:
    """On the vectors themselves, step by step."""
    shape, flat = tensors[0].shape, [tensor.ravel() for tensor in tensors]
    lengths = [math.sqrt(float((vector * vector).sum())) for vector in flat]
    units = [vector / length for vector, length in zip(flat, lengths, strict=True) if length > tolerance]
    if not units:
        return np.zeros(shape)
    mean = unit(sum(units))
    for _ in range(steps):
        tangent = np.zeros_like(mean)
        for one in units:
            cosine = min(max(float(mean @ one), -1.0), 1.0)
            angle = math.acos(cosine)
            if angle > tolerance:
                tangent += angle / math.sin(angle) * (one - cosine * mean) / len(units)
        step = math.sqrt(float(tangent @ tangent))
        if step <= tolerance:
            break
        mean = unit(math.cos(step) * mean + math.sin(step) * tangent / step)
    return (sum(lengths) / len(lengths) * mean).reshape(shape)


# --- joint bases -----------------------------------------------------------------------------------------------------


def ties(entries: Array, density: float = 0.2, aggregation: str = "mean") -> Array:
    """Entries (K, *S), each task's trimmed alone; an exact tie elects no sign."""
    kept = []
    for task in entries:
        sizes = np.sort(np.abs(task).ravel())
        smallest = sizes[max(len(sizes) - int(len(sizes) * density) - 1, 0)] if density < 1 else 0.0
        kept.append(np.where(np.abs(task) >= max(smallest, 1e-12 * sizes[-1]), task, 0.0))
    stack = np.stack(kept)
    agree = np.sign(stack) * np.sign(stack.sum(axis=0)) > 0
    total = np.where(agree, stack, 0.0).sum(axis=0)
    return total if aggregation == "sum" else total / np.maximum(agree.sum(axis=0), 1)


def singular_vectors(matrix: Array) -> Array:
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    return left[:, values > 1e-10 * values[0]] if values[0] else left[:, :0]


def knots(deltas: Array, scaling: float = 1.0, **params: object) -> Array:
    """From the decomposition of the matrices (K, m, n) side by side."""
    left, values, right = np.linalg.svd(np.concatenate(list(deltas), axis=1), full_matrices=False)
    count = int((values > 1e-10 * values[0]).sum())
    parts = np.stack(np.split(right[:count], len(deltas), axis=1))
    return scaling * left[:, :count] @ ties(values[:count, None] * parts, **params)


def core_space(ups: list[Array], downs: list[Array], scaling: float = 1.0, **params: object) -> Array:
    """From factors (m, r) and (r, n) of every task."""
    left, right = singular_vectors(np.concatenate(ups, axis=1)), singular_vectors(np.concatenate(downs).T)
    cores = np.stack([left.T @ up @ down @ right for up, down in zip(ups, downs, strict=True)])
    return scaling * left @ ties(cores, **params) @ right.T


def core_space_of_matrices(deltas: Array, scaling: float = 1.0, **params: object) -> Array:
    left = singular_vectors(np.concatenate(list(deltas), axis=1))
    right = singular_vectors(np.concatenate(list(deltas), axis=0).T)
    return scaling * left @ ties(np.stack([left.T @ delta @ right for delta in deltas]), **params) @ right.T


# --- ranked chances --------------------------------------------------------------------------------------------------


def chances(vector: Array, density: float, epsilon: float) -> Array:
    """The probability that each scalar of a tensor is kept, row by row."""
    rows = vector.reshape(len(vector), -1) if vector.ndim > 1 else vector[None]
    spread, found = min(epsilon, density, 1 - density), np.full(rows.shape, density)
    if rows.shape[1] > 1:
        for row, out in zip(rows, found, strict=True):
            for rank, place in enumerate(sorted(range(len(row)), key=lambda i, row=row: (abs(row[i]), i))):
                out[place] = density - spread + 2 * spread * rank / (len(row) - 1)
    return found.reshape(vector.shape)


def draws(seed: int, expert: str, tensor: str, count: int) -> tuple[list[int], float]:
    """The numbers in [0, 2¹⁶) of a tensor's scalars, and the number in [0, 1) that rounds their limits."""
    digest = hashlib.blake2b(json.dumps(["della", seed, expert, tensor]).encode(), digest_size=38).digest()
    state = {"state": int.from_bytes(digest[:16], "little"), "inc": int.from_bytes(digest[16:32], "little") | 1}

    def read(first_word: int) -> bytes:
        generator = PCG64DXSM(0)
        generator.state = {"bit_generator": "PCG64DXSM", "state": state, "has_uint32": 0, "uinteger": 0}
        generator.advance(first_word)
        return b"".join(int(generator.random_raw()).to_bytes(8, "little") for _ in range(-(-count // 8)))

    numbers = [256 * high + low for high, low in zip(read(0)[:count], read(2**64)[:count], strict=True)]
    return numbers, int.from_bytes(digest[32:], "little") / 2**48


def della(
    vector: Array, expert: str, tensor: str, density: float = 0.5, epsilon: float = 0.15, seed: int = 0,
    rescale_by: str = "probability",
) -> Array:  # fmt: skip
    """One expert's tensor: what is kept, rescaled."""
    keep = chances(vector, density, epsilon)
    numbers, rounding = draws(seed, expert, tensor, vector.size)
    limits = [int((1 - chance) * 2**16 + rounding) for chance in keep.ravel()]
    kept = np.array([n >= limit for n, limit in zip(numbers, limits, strict=True)]).reshape(vector.shape)
    if rescale_by == "probability":
        return np.where(kept, vector / np.maximum(keep, 1e-30), 0.0)
    left = np.where(kept, vector, 0.0)
    before, after = np.abs(vector).sum(), np.abs(left).sum()
    return left * (before / after) if rescale_by == "l1" and after else left
