"""Runs of chains that learn: what they keep, what their facts say, and how they pause and go on."""

from __future__ import annotations

import pytest
import torch

from merging.errors import Cancelled, Paused
from merging.formats.opening import open_checkpoint
from merging.recipes.recipe import Recipe

SHORT = {"steps": 6, "batch": 4, "lr": 0.01}


@pytest.fixture
def adamerging(tiny_benchmark):
    def build(split: str = "choosing", **params: object) -> Recipe:
        return Recipe.build(
            "adamerging", SHORT | params, [], tiny_benchmark.pretrained, tiny_benchmark.experts,
            test_data={"split": split},
        )  # fmt: skip

    return build


def test_a_run_says_on_which_images_it_learned(adamerging, run_it) -> None:
    held_out, on_test = run_it(adamerging()), run_it(adamerging("reporting"))
    assert (held_out.adapted_on, on_test.adapted_on) == ("choosing", "reporting")
    assert (held_out.adapts_on_test, on_test.adapts_on_test) == (False, True)
    assert held_out.id != on_test.id
    assert not held_out.needs_task
    assert "coefficients" in held_out.tables


def test_a_paused_run_goes_on_to_the_same_bytes(adamerging, run_it, store) -> None:
    asked = iter([False, False, False])
    with pytest.raises(Paused):
        run_it(adamerging(), pause=lambda: next(asked, True))
    (kept,) = (store.root / "learning").iterdir()
    resumed = run_it(adamerging())
    assert not kept.exists()
    assert kept.stem == resumed.id
    store.delete(resumed.id)
    bytes_of = {name: resumed.id for name in ()}
    again = run_it(adamerging())
    assert again.model_path is not None
