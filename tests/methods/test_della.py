"""DELLA: chances by rank in a row, against plain arithmetic; what its limits come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plain_arcs_and_bases as plain
import pytest
import torch
from safetensors.torch import load_file

import merging
from merging.base.errors import RecipeError
from merging.methods.edits.della import keep_probabilities
from merging.methods.shared import random_masks
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role
from merging.recipes.recipe import Recipe

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def family() -> Any:
    base = load_file(GOLDEN / "pretrained.safetensors")
    return base, {name: load_file(GOLDEN / f"expert_{name}.safetensors") for name in ("task0", "task1")}


@pytest.mark.parametrize(
    "params",
    [{}, {"rescale_by": "l1", "seed": 3}, {"rescale_by": "none", "density": 0.1}, {"density": 0.9, "epsilon": 0.5}],
    ids=str,
)
def test_on_golden_checkpoints(family: Any, params: dict[str, Any]) -> None:
    base, experts = family
    found = merging.merge(base, experts, "task_arithmetic", {"scaling": 1.0}, [("della", params)], device="cpu")
    for name, pretrained in base.items():
        vectors = {expert: (state[name] - pretrained).numpy() for expert, state in experts.items()}
        expected = sum(plain.della(vector, expert, name, **params) for expert, vector in vectors.items())
        error = np.linalg.norm((found.state_dict[name] - pretrained).numpy() - expected)
        assert error <= 1e-9 * max(np.linalg.norm(expected), 1.0), name


def test_chances_rise_with_the_rank_in_a_row() -> None:
    vectors = torch.tensor([[[3.0, -1.0, 2.0], [0.0, 0.0, -5.0]]])
    assert keep_probabilities(vectors, 0.5, 0.2)[0].flatten().tolist() == pytest.approx([0.7, 0.3, 0.5, 0.3, 0.5, 0.7])
    assert keep_probabilities(vectors[:, 0], 0.5, 0.0)[0].tolist() == [0.5] * 3
    assert keep_probabilities(vectors[:, 0], 0.9, 0.4)[0].tolist() == pytest.approx([1.0, 0.8, 0.9])  # fits in [0, 1]
    assert keep_probabilities(torch.ones(1, 4, 1), 0.3, 0.2).flatten().tolist() == pytest.approx([0.3] * 4)
    kernel = torch.arange(8.0).reshape(1, 2, 2, 2)  # one row per output
    assert keep_probabilities(kernel, 0.5, 0.3)[0, 0].flatten().tolist() == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_as_many_are_kept_as_the_chances_say() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 40, 500, generator=generator)
    parameter = Parameter("visual.proj", Role.PROJECTION, "", "", None, 0)
    slot = Slot(parameter, ("a", "b"), vectors[0], vectors)
    probabilities = keep_probabilities(vectors, 0.4, 0.3)
    kept = random_masks.sample_at_rates("della", 0, 1 - probabilities, slot).double()
    largest = vectors.abs() >= vectors.abs().quantile(0.9, dim=2, keepdim=True)
    for mask, chance in ((largest, 0.67), (~largest, 0.37)):
        share, count = float(kept[mask].mean()), int(mask.sum())
        assert abs(share - chance) < 5 * (chance * (1 - chance) / count) ** 0.5
    rescaled = (kept * vectors / probabilities - vectors).mean()  # the expectation is preserved
    assert abs(float(rescaled)) < 5 * float((vectors.square() / probabilities).mean() / vectors.numel()) ** 0.5


def test_equal_rates_keep_what_one_rate_keeps() -> None:
    vectors = torch.ones(2, 1001)
    slot = Slot(Parameter("visual.proj", Role.PROJECTION, "", "", None, 0), ("a", "b"), vectors[0], vectors)
    for rate in (0.0, 0.3, 0.5, 0.999, 1.0):
        one = random_masks.sample_survivors("della", 7, rate, slot)
        assert torch.equal(one, random_masks.sample_at_rates("della", 7, torch.full((2, 1001), rate).double(), slot))


def test_without_spread_it_is_dare_with_other_numbers(family: Any) -> None:
    base, experts = family
    della, dare = (
        merging.merge(base, experts, "task_arithmetic", {"scaling": 1.0}, [edit], device="cpu").state_dict
        for edit in (("della", {"density": 0.2, "epsilon": 0.0}), ("dare", {"drop_rate": 0.8}))
    )
    sizes = [
        {round(float(x), 9) for x in (state["visual.proj"] - base["visual.proj"]).flatten()} for state in (della, dare)
    ]
    assert sizes[0] != sizes[1]
    vectors = torch.stack([state["visual.proj"] - base["visual.proj"] for state in experts.values()])
    sums = {round(float(x), 9) for x in torch.cat([vectors.sum(0).flatten(), vectors.flatten()]) / 0.2} | {0.0}
    assert all(found <= sums for found in sizes)


def test_one_seed_may_not_draw_twice() -> None:
    with pytest.raises(RecipeError, match="give the second another seed"):
        Recipe.build("ties", edits=["della", "della"])
    assert len(Recipe.build("ties", edits=["della", ("della", {"seed": 1})]).edits) == 2
    with pytest.raises(RecipeError, match="random after della"):
        Recipe.build("model_stock", edits=["della"])
