"""CLIP stays as it is: run ids and results of every edit and merge are those of before other families were opened."""

from __future__ import annotations

import json

import common_checks
import frozen_clip
import pytest
import tiny
from namings import to_naming
from safetensors.torch import save_file

from merging.methods import registry
from merging.models.formats.model_sources import open_checkpoint

FROZEN = json.loads(frozen_clip.FILE.read_text(encoding="utf-8"))
METHODS = {f"{method.role} {method.key}": method for method in frozen_clip.tested()}


def test_every_frozen_method_is_registered():
    """Methods that were added later need no entry."""
    assert set(FROZEN["results"]) == set(FROZEN["ids"]) <= set(METHODS)


@pytest.mark.parametrize("name", FROZEN["results"])
def test_run_ids_and_results_are_unchanged(name):
    assert (
        frozen_clip.run_id(common_checks.recipe(METHODS[name], frozen_clip.STEPS.get(METHODS[name].key)))
        == FROZEN["ids"][name]
    )
    found, expected = frozen_clip.merge_digests(METHODS[name]), FROZEN["results"][name]
    if frozen_clip.same_bits(METHODS[name]):
        assert found == expected
    else:
        assert found == [pytest.approx(state, rel=1e-3, abs=1e-6) for state in expected]


def test_the_ids_of_the_bundled_library_are_unchanged():
    found = frozen_clip.bundled_ids()
    assert {stored: now for stored, now in found.items() if stored != now} == {}
    assert sorted(found) == FROZEN["library"]


def test_files_of_transformers_give_the_same_bytes(tmp_path):
    """The experts lie in files with Transformers' names, split q, k and v and a transposed projection."""
    base, experts = frozen_clip.models()
    opened = {}
    for name, state in experts.items():
        save_file(to_naming(state, "hf"), tmp_path / f"{name}.safetensors")
        opened[name] = open_checkpoint(tmp_path / f"{name}.safetensors", name, like=tiny.checkpoint(base))
    states = {name: one.state_dict() for name, one in opened.items()}
    result = common_checks.merge(registry.find_merge("task_arithmetic"), base, states)
    assert [frozen_clip.bits(result.state_dict)] == FROZEN["results"]["merge task_arithmetic"]
