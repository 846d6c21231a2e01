"""Configs of mergekit give the numbers that mergekit itself computes, and written configs read back to the same."""

from __future__ import annotations

from typing import Any

import mergekit_cases
import pytest
import torch

import merging
from merging.methods.edits import dare, della
from merging.methods.slot import Slot
from merging.models.families import classify_parameters, stored_tensor_name
from merging.recipes.mergekit.merge_methods import MERGE_METHODS
from merging.recipes.mergekit.reading import read_mergekit
from merging.recipes.mergekit.settings import NetworkTensor
from merging.recipes.mergekit.writing import write_mergekit
from merging.recipes.recipe import Recipe

MODELS = mergekit_cases.make_models()
RESULTS = mergekit_cases.load_results()
TENSORS = [NetworkTensor(p, (p.name,)) for p in classify_parameters(list(MODELS["base"]))]


def read(text: str, pretrained: str = "", tensors: Any = None) -> Recipe:
    return read_mergekit(text, lambda reference: TENSORS if tensors is None else tensors, pretrained=pretrained)


def merge(recipe: Recipe) -> dict[str, torch.Tensor]:
    edits = [(step.key, step.params.values()) for step in recipe.edits]
    experts = {name: MODELS[reference] for name, reference in recipe.experts}
    params = recipe.merge.params.values()
    return dict(
        merging.merge(MODELS[recipe.pretrained], experts, recipe.merge.key, params, edits, device="cpu").state_dict
    )


def drawn(case: str, slot: Slot) -> torch.Tensor:
    """mergekit's masks of a slot, (K, *S)."""
    name = stored_tensor_name(slot.name)
    whole = torch.ones(slot.task_vectors.shape[1:], dtype=torch.uint8)
    masks = [RESULTS.get(f"{case}/mask/{name}/{expert}", whole) for expert in slot.experts]
    return torch.stack([mask.reshape(whole.shape) for mask in masks])


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch):
    """Let the random edits drop what mergekit dropped in a case."""

    def use(case: str) -> None:
        monkeypatch.setattr(dare, "sample_survivors", lambda key, seed, rates, slot: drawn(case, slot))
        monkeypatch.setattr(della, "sample_at_rates", lambda key, seed, rates, slot: drawn(case, slot))

    return use


def assert_equal(state: dict[str, torch.Tensor], case: str) -> None:
    rounding = 2e-4 if case.startswith("karcher") else 2e-6  # mergekit takes arccos of numbers near 1 in float32
    for name, value in state.items():
        assert torch.allclose(value, RESULTS[f"{case}/{name}"], rtol=rounding, atol=rounding), (case, name)


def test_every_method_has_a_case() -> None:
    assert {text.split()[1] for text in mergekit_cases.CONFIGS.values()} == set(MERGE_METHODS)
    assert mergekit_cases.FILE.stat().st_size < 60_000


@pytest.mark.parametrize("case", mergekit_cases.CONFIGS)
def test_results_are_those_of_mergekit(case: str, same_draws: Any) -> None:
    same_draws(case)
    assert_equal(merge(read(mergekit_cases.CONFIGS[case])), case)


@pytest.mark.parametrize("case", mergekit_cases.CONFIGS)
def test_a_written_config_reads_back_to_the_same_result(case: str, same_draws: Any) -> None:
    recipe = read(mergekit_cases.CONFIGS[case])
    written = write_mergekit(recipe, TENSORS)
    same_draws(case)
    assert_equal(merge(read(written, recipe.pretrained if recipe.merge.key in ("slerp", "karcher") else "")), case)
