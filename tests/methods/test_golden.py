"""Golden vectors: small float64 checkpoints and the exact merged result of each case, through the public API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import merging

GOLDEN = Path(__file__).parents[1] / "golden"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
CASES = MANIFEST["cases"]


def _load(name: str) -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / f"{name}.safetensors")


@pytest.fixture(scope="module")
def inputs():
    experts = MANIFEST["experts"]
    return _load("pretrained"), {e: _load(f"expert_{e}") for e in experts}, {e: _load(f"inputs_{e}") for e in experts}


def test_every_expected_result_belongs_to_a_case():
    assert len(CASES) == 36
    assert sorted(file for case in CASES for file in case["expect"]) == sorted(p.name for p in GOLDEN.glob("expect_*"))


@pytest.mark.parametrize("dtype,tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case, dtype, tolerance, inputs):
    pretrained, experts, layer_inputs = inputs
    cast = {name: {n: t.to(dtype) for n, t in expert.items()} for name, expert in experts.items()}
    base = {n: t.to(dtype) for n, t in pretrained.items()}
    result = merging.merge(
        base,
        cast,
        merge=case["merge"],
        params=case["params"],
        edits=[(key, params) for key, params in case["edits"]],
        layer_inputs=layer_inputs if case["needs_layer_inputs"] else None,
        device="cpu",
    )
    states = result.task_state_dicts or {"merged": result.state_dict}
    for state, file in zip(states.values(), case["expect"], strict=True):
        expect = _load(file.removesuffix(".safetensors"))
        assert list(state) == list(base)
        difference = sum(((state[n].double() - expect[n]) ** 2).sum() for n in expect) ** 0.5
        change = sum(((expect[n] - pretrained[n]) ** 2).sum() for n in expect) ** 0.5
        assert difference <= tolerance * max(change, 1e-12)
