"""One layer with the rows that enter it in every expert, as merges that look at data get it."""

from __future__ import annotations

import dataclasses

import torch

from merging.methods.moments import Moments
from merging.methods.registry import find_merge
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role

NAME = "visual.transformer.resblocks.0.mlp.c_fc.weight"
D_IN, D_OUT, EXPERTS = 12, 9, 3


def draw(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slot_of(rows, seed=0, d_out=D_OUT, role=Role.LINEAR, **more):
    """A linear weight (d_out, d_in), or a norm scale, with the rows that enter it in every expert."""
    width = rows[0].shape[1]
    shape = (width,) if role == Role.NORM_SCALE else (d_out, width)
    inputs = tuple(Moments.from_rows(x) for x in rows)
    parameter = Parameter(NAME, role, "mlp.c_fc", "block 0", 0, 0)
    vectors = draw(seed + 1, len(rows), *shape)
    names = tuple(f"expert {k}" for k in range(len(rows)))
    return Slot(parameter, names, draw(seed, *shape), vectors, read_inputs=lambda: inputs, **more)


def rows_of(count, seed=10, width=D_IN, experts=EXPERTS):
    """Rows of the experts, of different numbers and each with other strong columns."""
    spread = 4 ** torch.linspace(-1, 1, width).double()
    return [draw(seed + k, count + k, width) * spread.roll(k * width // experts) for k in range(experts)]


def run(key, slot, **params):
    method = find_merge(key)
    return method.run(slot, method.params.build(params), None)


def record_notes(slot):
    """The slot, and the rows of tables that it is told."""
    told = []
    return dataclasses.replace(slot, note=lambda table, **row: told.append(row | {"table": table})), told


def drift(slot, rows, change):
    """Σ_k ‖X_k (change - τ_k)ᵀ‖²."""
    return sum(float((x @ (change - v).T).square().sum()) for x, v in zip(rows, slot.task_vectors, strict=True))


def assert_near(found, expected, tolerance=1e-9):
    return float((found - expected).norm()) <= tolerance * max(float(expected.norm()), 1.0)
