"""What a model file says of its merge."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from merging.recipes.recipe import Recipe
from merging.sharing.export.export_provenance import collect_merge_metadata


@pytest.mark.parametrize(("counting", "scope"), [(True, "paper"), (False, "visual")])
def test_metadata_say_what_was_merged_how_and_over_which_tensors(counting: bool, scope: str) -> None:
    inputs = {"pretrained": "0" * 64, "experts/a": "1" * 64, "experts/b": "2" * 64}
    run: Any = SimpleNamespace(inputs=inputs, versions={"mergescope": "9.9", "torch": "8.8"})
    experts = {"a": "/home/me/a.safetensors", "b": "/home/me/b.safetensors"}
    recipe = Recipe.build("ties", {"density": 0.3}, ["lwptv"], "/home/me/p", experts, count_dead_params=counting)
    metadata = collect_merge_metadata(run, recipe)
    assert metadata["scope"] == scope and metadata["merge_method"] == "ties"
    assert (metadata["engine_version"], metadata["torch_version"]) == ("9.9", "8.8")
    assert metadata["base_sha256"] == "0" * 64
    assert json.loads(metadata["source_sha256"]) == {"a": "1" * 64, "b": "2" * 64}
    merged = json.loads(metadata["merge_recipe"])
    assert merged["merge"]["ties"]["density"] == 0.3 and "lwptv" in merged["edits"][0]
    assert merged.get("count_dead_params", False) == counting
    assert "/home" not in "".join(metadata.values())
