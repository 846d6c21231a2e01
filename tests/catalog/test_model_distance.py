"""The distance between two models of the catalog, of a size that every sample of their numbers gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from shelf_folders import recognize_folder

from merging.models.inspection.distance import Distance


def scaled(state: tiny.StateDict, factor: float) -> tiny.StateDict:
    return {name: value * factor for name, value in state.items()}


def test_the_distance_is_the_share_by_which_numbers_changed(root: Path) -> None:
    base = tiny.pretrained()
    for name, factor in {"base": 1.0, "tuned": 1.1, "far": 1.6, "opposite": -1.0}.items():
        tiny.write(root / f"{name}.safetensors", scaled(base, factor), torch.float32)
    facts = {entry.name: each for entry, each in recognize_folder(root)}

    def distance(one: str, other: str) -> Distance:
        measured = facts[one].distance(facts[other])
        assert measured is not None
        return measured

    assert distance("tuned", "base").ratio == pytest.approx(0.1, rel=1e-5)
    assert distance("base", "tuned").ratio == pytest.approx(0.1 / 1.1, rel=1e-5)
    assert distance("far", "base").unrelated and distance("opposite", "base").unrelated
    assert not distance("tuned", "base").unrelated
    assert facts["tuned"].distance(replace(facts["base"], signature="of other shapes")) is None
