"""KnOTS and Core Space against plain arithmetic on golden checkpoints and on low-rank factors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plain_arcs_and_bases as plain
import pytest
import torch
from safetensors.torch import load_file

import merging
from merging.base.numerics.low_rank import LowRank
from merging.methods import registry
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role, classify_parameters

GOLDEN = Path(__file__).parents[1] / "golden"
NAIVE = {"knots": plain.knots, "core_space": plain.core_space_of_matrices}
CASES: list[dict[str, Any]] = [{}, {"density": 1.0}, {"density": 0.5, "aggregation": "sum"}]


@pytest.fixture(scope="module")
def family() -> Any:
    base = load_file(GOLDEN / "pretrained.safetensors")
    return base, {name: load_file(GOLDEN / f"expert_{name}.safetensors") for name in ("task0", "task1", "task2")}


def run(key: str, vectors: Any, factors: Any = None, **params: Any) -> Any:
    """One merge of one matrix."""
    vectors = torch.as_tensor(vectors)
    method = registry.find_merge(key)
    parameter = Parameter("blocks.0.weight", Role.LINEAR, "weight", "block 0", 0, 0)
    names = tuple(map(str, range(len(vectors))))
    slot = Slot(parameter, names, torch.zeros_like(vectors[0]), vectors, factors=factors)
    return method.run(slot, method.params.build(params), None)


def draw_factors(*ranks: int, height: int = 9, width: int = 7, seed: int = 0) -> list[LowRank]:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=draw)

    return [LowRank(normal(height, rank), normal(rank, width)) for rank in ranks]


def products(factors: list[LowRank]) -> torch.Tensor:
    return torch.stack([factor.up @ factor.down for factor in factors])


def assert_same(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    assert np.linalg.norm(np.asarray(found) - np.asarray(expected)) <= tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("params", CASES, ids=str)
@pytest.mark.parametrize("key", NAIVE)
def test_on_golden_checkpoints(family: Any, key: str, params: dict[str, Any]) -> None:
    base, experts = family
    found = merging.merge(base, experts, key, params, device="cpu").state_dict
    decomposed = 0
    for parameter in classify_parameters(base):
        vectors = np.stack([(state[parameter.name] - base[parameter.name]).numpy() for state in experts.values()])
        is_matrix = vectors.ndim == 3 and parameter.role in ("linear", "projection", "embedding")
        decomposed += is_matrix
        merged = NAIVE[key](vectors, **params) if is_matrix else plain.ties(vectors, **params)
        assert_same((found[parameter.name] - base[parameter.name]).numpy(), merged)
    assert decomposed > 3


@pytest.mark.parametrize("aggregation,other", [("sum", "task_arithmetic"), ("mean", "weight_averaging")])
@pytest.mark.parametrize("key", NAIVE)
def test_the_plain_rule_is_the_sum_or_the_mean_of_task_vectors(
    family: Any, key: str, aggregation: str, other: str
) -> None:
    params = {"rule": "plain", "aggregation": aggregation}
    found = merging.merge(*family, key, params, device="cpu").state_dict
    full = {"scaling": 1.0} if other == "task_arithmetic" else {}
    expected = merging.merge(*family, other, full, device="cpu").state_dict
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-14)


def test_the_bases_hold_every_task_vector() -> None:
    """One expert alone comes out of both, with nothing trimmed, whatever its rank."""
    for ranks in ((2,), (7,)):
        vectors = products(draw_factors(*ranks))
        for key in NAIVE:
            assert_same(run(key, vectors, density=1.0), vectors[0])


@pytest.mark.parametrize("params", CASES, ids=str)
@pytest.mark.parametrize("ranks", [(2, 2), (2, 3, 1), (4, 4, 4)])  # the last fill both sides
def test_core_space_of_known_factors(ranks: tuple[int, ...], params: dict[str, Any]) -> None:
    factors = draw_factors(*ranks)
    found = run("core_space", products(factors), tuple(factors), **params)
    expected = plain.core_space([f.up.numpy() for f in factors], [f.down.numpy() for f in factors], **params)
    assert_same(found, expected)


def test_core_space_of_factors_has_other_axes_than_that_of_matrices() -> None:
    factors = draw_factors(2, 3)
    by_factors = run("core_space", products(factors), tuple(factors))
    by_matrices = run("core_space", products(factors))
    assert float((by_factors - by_matrices).norm()) > 0.01 * float(by_matrices.norm())


def test_knots_elects_in_the_tasks_own_directions() -> None:
    """Two experts that disagree in one direction only: there the longer wins, elsewhere both stay."""
    left, right = (torch.linalg.qr(draw_factors(5, height=6, width=6, seed=seed)[0].up).Q for seed in (1, 2))
    first = 3 * torch.outer(left[:, 0], right[:, 0]) + torch.outer(left[:, 1], right[:, 1])
    second = -2 * torch.outer(left[:, 0], right[:, 0]) + 0.5 * torch.outer(left[:, 2], right[:, 2])
    found = run("knots", torch.stack([first, second]), density=1.0, aggregation="sum")
    expected = first + 0.5 * torch.outer(left[:, 2], right[:, 2])
    assert_same(found, expected)


def test_zero_experts_and_empty_tensors() -> None:
    zero = torch.zeros(2, 4, 3, dtype=torch.float64)
    some = torch.stack([zero[0], products(draw_factors(2, height=4, width=3))[0]])
    for key in NAIVE:
        assert not run(key, zero).any()
        assert_same(run(key, some, density=1.0), some[1])
        assert run(key, torch.zeros(2, 0, 3, dtype=torch.float64)).shape == (0, 3)
