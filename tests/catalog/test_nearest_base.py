"""A pretrained model in another folder is taken for experts' own only if no other is about as near."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch
from shelf_folders import recognize_folder

from merging.sharing.catalog.model_groups import find_groups


@pytest.mark.parametrize(("second", "clear"), [(0.01, False), (0.5, True)])
def test_of_two_models_that_are_as_near_none_is_taken(root: Path, second: float, clear: bool) -> None:
    """``second`` is how far the other candidate is from the pretrained model, of which experts are some 5 % away."""
    base, tuned = tiny.family(("a", "b"))
    draw = torch.Generator().manual_seed(0)
    other = {name: value + second * torch.randn(value.shape, generator=draw) for name, value in base.items()}
    places = {f"experts/{name}": state for name, state in tuned.items()} | {"one/m": base, "two/m": other}
    for place, state in places.items():
        (root / place).parent.mkdir(exist_ok=True)
        tiny.write(root / f"{place}.safetensors", state, torch.float32)
    group = next(group for group in find_groups(recognize_folder(root)) if group.title.endswith("experts"))
    assert (group.pretrained is not None) == clear
    assert group.pretrained is None or "one" in group.pretrained.listed_path
