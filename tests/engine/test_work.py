"""The work of chains: operations against torch's own count, bytes against what is read and written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
from method_chains import chain_of, images_of
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from merging.engine import run as engine
from merging.engine.chain_work import chain_work
from merging.methods import registry
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step
from merging.study.runs.opened_recipe import open_inputs
from merging.tasks.context import Context

METHODS = registry.list_methods()
TOLERANCE = 1.5  # either way: decompositions are estimates, and minor products are left out
DROPS = {"lwptv"}  # edits that leave tensors out, which are not read
Shape = tuple[int, ...]


def product_in_place(total: Shape, left: Shape, right: Shape, *_: Any, **__: Any) -> float:
    return 2.0 * left[0] * left[1] * right[1]


def eigen(matrix: Shape, *_: Any, **__: Any) -> float:
    """Values and vectors (Golub and Van Loan, Matrix computations, section 8.3)."""
    return 9.0 * matrix[-1] ** 3


def cholesky(matrix: Shape, *_: Any, **__: Any) -> float:
    return matrix[-1] ** 3 / 3


def solving(columns: Shape, factor: Shape, *_: Any, **__: Any) -> float:
    return 2.0 * factor[-1] ** 2 * columns[-1]


def orthogonal(matrix: Shape, *_: Any, **__: Any) -> float:
    """R and Q of a thin decomposition (the same book, section 5.2)."""
    long, short = max(matrix[-2:]), min(matrix[-2:])
    return 4.0 * long * short**2 - 4 / 3 * short**3


def singular(matrix: Shape, *_: Any, **__: Any) -> float:
    """Thin factors (the same book, section 8.6)."""
    long, short = max(matrix[-2:]), min(matrix[-2:])
    return 6.0 * long * short**2 + 20.0 * short**3


ATEN = torch.ops.aten
# What torch's counter leaves out: products that are added in place, and decompositions.
ADDED = {
    ATEN.addmm_: product_in_place, ATEN._linalg_eigh: eigen, ATEN.linalg_cholesky_ex: cholesky,
    ATEN.cholesky_solve: solving, ATEN.linalg_qr: orthogonal, ATEN._linalg_svd: singular,
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.role}-{method.key}")
def test_operations_are_those_that_torch_counts(method: Any, tiny_benchmark: Any) -> None:
    counted_as_stated(
        chain_of(method, pretrained=tiny_benchmark.pretrained, experts=tiny_benchmark.experts), tiny_benchmark
    )


@pytest.mark.full
@pytest.mark.parametrize("key", ["drm", "iso_c", "iso_cts", "tsv_m", "wudi", "cat"])
def test_operations_of_query_key_and_value_apart(key: str, tiny_benchmark: Any) -> None:
    (method,) = [method for method in METHODS if method.key == key]
    packed = chain_of(method, pretrained=tiny_benchmark.pretrained, experts=tiny_benchmark.experts)
    steps = [Step(step.key, step.params.build(step.params.values() | {"split_qkv": True})) for step in packed.steps
             if step.key == key]  # fmt: skip
    apart = replace(packed, edits=tuple(steps)) if key == "cat" else replace(packed, merge=steps[0])
    alike = counted_as_stated(apart, tiny_benchmark) == counted_as_stated(packed, tiny_benchmark)
    assert alike == (key == "wudi")  # whose products are of the layer's inputs, whatever its outputs


def counted_as_stated(recipe: Recipe, tiny_benchmark: Any) -> float:
    inputs = open_inputs(recipe, benchmark=tiny_benchmark)
    shown = images_of(recipe, tiny_benchmark)
    counter = FlopCounterMode(display=False, custom_mapping=ADDED)
    with counter:
        engine.run_recipe(recipe, inputs.pretrained, inputs.experts, context=Context(device="cpu"), **shown)
    counted, work = counter.get_total_flops(), chain_work(recipe, inputs.pretrained, inputs.experts)
    stated = work.matrix_flops + work.tower_flops
    assert (counted == 0) == (stated == 0)
    assert counted / TOLERANCE <= stated <= counted * TOLERANCE
    return stated


class Counting(MappingCheckpoint):
    """A checkpoint that knows how many bytes were read from it."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__(tensors, "tiny")
        self.metadata, self.bytes_read = tiny.checkpoint(tensors).metadata, 0

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        piece = super().read_flat(name, start, stop)
        self.bytes_read += piece.nbytes
        return piece


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.role}-{method.key}")
def test_bytes_are_those_that_are_read_and_written(method: Any, tiny_benchmark: Any) -> None:
    base, tuned = tiny.family(tiny.EXPERTS[: method.max_experts])
    pretrained, experts = Counting(base), {name: Counting(tensors) for name, tensors in tuned.items()}
    recipe = chain_of(method)
    shown = images_of(recipe, tiny_benchmark)
    result = engine.run_recipe(recipe, pretrained, experts, context=Context(device="cpu"), **shown)
    work = chain_work(recipe, pretrained, experts)
    counted = sum(model.bytes_read for model in (pretrained, *experts.values()))
    states = (result.task_state_dicts or {"": result.state_dict}).values()
    assert work.writes == sum(tensor.nbytes for state in states for tensor in state.values())
    if method.key in DROPS:
        assert work.reads / 2 < counted < work.reads
    else:
        assert counted == work.reads
