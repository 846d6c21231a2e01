"""Layer inputs captured from exemplars, against plain forward passes and against inputs that are given."""

from __future__ import annotations

import common_checks
import pytest
import tiny
import torch

from merging import engine
from merging.encoder import Encoder
from merging.errors import NeedsError
from merging.evidence import CapturedInputs
from merging.recipe import Recipe


def _images(experts):
    return {n: torch.randn(5, 3, tiny.SIZE, tiny.SIZE, generator=torch.Generator().manual_seed(k))
            for k, n in enumerate(experts)}  # fmt: skip


@pytest.mark.parametrize("backwards", [False, True])
def test_captured_rows_equal_those_of_a_plain_forward_pass(backwards):
    _, states = tiny.family()
    experts, images = {n: tiny.checkpoint(s) for n, s in states.items()}, _images(states)
    expected = {n: {} for n in experts}
    with torch.inference_mode():
        for name, checkpoint in experts.items():
            Encoder.of(checkpoint)(images[name], record=expected[name].__setitem__)
    captured = CapturedInputs(experts, images, torch.device("cpu"))
    parameters = next(iter(experts.values())).parameters
    for parameter in reversed(parameters) if backwards else parameters:
        rows = captured.rows(parameter)
        assert (rows is None) == (parameter.name not in expected["digits"])
        for name, row in zip(experts, rows or (), strict=rows is not None):
            assert torch.allclose(row, expected[name][parameter.name], atol=1e-6)


def test_exemplars_and_their_layer_inputs_give_one_result():
    base, states = tiny.family()
    experts, images = {n: tiny.checkpoint(s) for n, s in states.items()}, _images(states)
    rows = {n: {} for n in experts}
    with torch.inference_mode():
        for name, checkpoint in experts.items():
            Encoder.of(checkpoint)(images[name], record=rows[name].__setitem__)
    recipe = Recipe.build("lot")
    from_images = engine.run(recipe, tiny.checkpoint(base), experts, exemplars=images, device="cpu")
    from_rows = engine.run(recipe, tiny.checkpoint(base), experts, layer_inputs=rows, device="cpu")
    common_checks.assert_close(from_images.state_dict, from_rows.state_dict, base, 1e-4)


def test_an_expert_without_exemplars_is_named():
    base, states = tiny.family()
    experts, images = {n: tiny.checkpoint(s) for n, s in states.items()}, _images(states)
    del images["flags"]
    with pytest.raises(NeedsError, match="no exemplars for flags"):
        engine.run(Recipe.build("lot"), tiny.checkpoint(base), experts, exemplars=images)
