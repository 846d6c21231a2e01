"""SLERP, NuSLERP and the Karcher mean against plain arithmetic on golden checkpoints, and what they come to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import plain_arcs_and_bases as plain
import pytest
import torch
from safetensors.torch import load_file

import merging
from merging.base.errors import RecipeError
from merging.methods.merges.karcher import find_mean_weights
from merging.methods.shared.spheres import interpolate
from merging.recipes.recipe import Recipe

GOLDEN = Path(__file__).parents[1] / "golden"
State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def family() -> tuple[State, dict[str, State]]:
    base = load_file(GOLDEN / "pretrained.safetensors")
    return base, {name: load_file(GOLDEN / f"expert_{name}.safetensors") for name in ("task0", "task1", "task2")}


def check(family: Any, count: int, key: str, params: dict[str, Any], expect: Any) -> None:
    """Compare a merge with ``expect`` of the tensors of ``count`` experts, as weights or as task vectors."""
    base, experts = family[0], dict(list(family[1].items())[:count])
    found = merging.merge(base, experts, key, params, device="cpu").state_dict
    for name, pretrained in base.items():
        start = pretrained.numpy() if params.get("between", "weights") == "weights" else np.zeros(pretrained.shape)
        vectors = [(state[name] - pretrained).numpy() + start for state in experts.values()]
        expected = expect(vectors) - start
        error = np.linalg.norm((found[name] - pretrained).numpy() - expected)
        assert error <= 1e-9 * np.linalg.norm(expected), name


@pytest.mark.parametrize("between", ["weights", "task_vectors"])
@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_slerp_on_golden_checkpoints(family: Any, t: float, between: str) -> None:
    check(family, 2, "slerp", {"t": t, "between": between}, lambda pair: plain.slerp(*pair, t))


@pytest.mark.parametrize("between", ["weights", "task_vectors"])
@pytest.mark.parametrize("vectors", ["tensor", "rows", "columns"])
def test_nuslerp_on_golden_checkpoints(family: Any, vectors: str, between: str) -> None:
    params = {"t": 0.35, "vectors": vectors, "between": between}
    check(family, 2, "nuslerp", params, lambda pair: plain.nuslerp(*pair, 0.35, vectors))


@pytest.mark.parametrize("between", ["weights", "task_vectors"])
@pytest.mark.parametrize("steps,tolerance", [(10, 1e-5), (0, 1e-5), (2, 0.0), (200, 0.0)])
def test_karcher_on_golden_checkpoints(family: Any, steps: int, tolerance: float, between: str) -> None:
    params = {"steps": steps, "tolerance": tolerance, "between": between}
    check(family, 3, "karcher", params, lambda tensors: plain.karcher(tensors, steps, tolerance))


def test_the_karcher_mean_of_two_is_the_middle_of_their_arc(family: Any) -> None:
    base, experts = family[0], dict(list(family[1].items())[:2])
    unit = {  # both experts of one length, or the middle is not half of the way
        name: {n: base[n] + (v - base[n]) / (v - base[n]).norm() for n, v in state.items()}
        for name, state in experts.items()
    }
    karcher, slerp = (
        merging.merge(base, unit, key, params | {"between": "task_vectors"}, device="cpu").state_dict
        for key, params in (("karcher", {"steps": 300, "tolerance": 0.0}), ("nuslerp", {}))
    )
    for name in base:
        torch.testing.assert_close(karcher[name], slerp[name], rtol=1e-7, atol=1e-9)


def test_the_sum_of_steps_from_the_karcher_mean_is_zero() -> None:
    draw = torch.Generator().manual_seed(3)
    vectors = torch.randn(4, 9, generator=draw, dtype=torch.float64).abs()
    mean = find_mean_weights(vectors @ vectors.T, 500, 0.0) @ vectors
    assert float(mean.norm()) == pytest.approx(float(vectors.norm(dim=1).mean()))
    point, units = mean / mean.norm(), vectors / vectors.norm(dim=1, keepdim=True)
    cosines = units @ point
    steps = (cosines.arccos() / (1 - cosines**2).sqrt())[:, None] * (units - cosines[:, None] * point)
    assert float(steps.sum(dim=0).norm()) < 1e-9


def test_vectors_without_a_direction() -> None:
    vectors = torch.tensor([[3.0, 0.0], [0.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    some, opposite = vectors, torch.stack([vectors[0], -vectors[0]])
    mean = find_mean_weights(some @ some.T, 50, 1e-5) @ some
    assert mean.tolist() == pytest.approx([7 / 3 / math.sqrt(2)] * 2)  # the zero vector counts in the length
    assert (find_mean_weights(opposite @ opposite.T, 50, 1e-5) @ opposite).tolist() == [0, 0]
    assert not find_mean_weights(torch.zeros(2, 2, dtype=torch.float64), 5, 1e-5).any()


def test_a_zero_vector_is_orthogonal_and_equal_ones_stay() -> None:
    zero, one = torch.zeros(3, dtype=torch.float64), torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    found = interpolate(zero, one, 0.5, lambda angle: angle.sin() < 1e-8)
    assert found.tolist() == pytest.approx([math.sqrt(2), 0, 0])
    assert torch.equal(interpolate(one, one, 0.3, lambda angle: angle.sin() < 1e-8), one)
    assert not interpolate(zero, zero, 0.5, lambda angle: angle.sin() < 1e-8).any()


def test_small_arcs_of_slerp_are_lines_and_those_of_nuslerp_are_not() -> None:
    base = {"visual.ln_post.bias": torch.zeros(2, dtype=torch.float64)}
    angle = 0.03  # its cosine is above 0.9995
    experts = {
        "a": {"visual.ln_post.bias": torch.tensor([1.0, 0.0], dtype=torch.float64)},
        "b": {"visual.ln_post.bias": torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)},
    }
    slerp, nuslerp = (
        merging.merge(base, experts, key, device="cpu").state_dict["visual.ln_post.bias"]
        for key in ("slerp", "nuslerp")
    )
    assert float(slerp.norm()) == pytest.approx(math.cos(angle / 2), rel=1e-12)
    assert float(nuslerp.norm()) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("key,title", [("slerp", "SLERP"), ("nuslerp", "NuSLERP")])
def test_more_than_two_experts_are_refused(family: Any, key: str, title: str) -> None:
    sentence = f"{title} merges at most 2 experts, and 3 are given. Choose 2 of them, or a merge for any number"
    with pytest.raises(RecipeError, match=sentence):
        merging.merge(*family, key, device="cpu")
    with pytest.raises(RecipeError, match=sentence):  # a recipe without a run, too
        Recipe.build(key, experts=dict.fromkeys("abc", "x.safetensors"))
    for names in ("", "ab"):  # a chain on no experts yet, and one on two
        assert len(Recipe.build(key, experts=dict.fromkeys(names, "x.safetensors")).experts) == len(names)


def test_the_engine_refuses_more_experts_than_its_recipe_knows(family: Any) -> None:
    from merging.engine.run import run_recipe
    from merging.models.checkpoint import MappingCheckpoint

    base, experts = family
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    with pytest.raises(RecipeError, match="at most 2 experts, and 3 are given"):
        run_recipe(Recipe.build("slerp"), MappingCheckpoint(base, "pretrained"), opened)
