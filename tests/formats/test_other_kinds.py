"""Models that are not CLIP: all of their tensors are opened, and no merge leaves out some of them."""

from __future__ import annotations

import other_kinds
import pytest
from safetensors.torch import save_file

import merging
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.network_facts import title_of


@pytest.fixture(params=other_kinds.KINDS)
def team(request, tmp_path):
    """(State dict of the pretrained model, its file, {expert: file})."""
    base, paths = other_kinds.pretrained(request.param), {}
    for seed, name in enumerate(("pretrained", "a", "b")):
        paths[name] = tmp_path / f"{name}.safetensors"
        save_file(base if name == "pretrained" else other_kinds.expert(base, seed), paths[name])
    return base, paths.pop("pretrained"), paths


def test_all_tensors_are_opened_and_merged(team):
    base, pretrained, experts = team
    assert set(open_checkpoint(pretrained).infos) == set(base)
    report = check_fit(pretrained, experts)
    assert report.mergeable and not report.problems
    assert set(merging.merge(pretrained, experts, "task_arithmetic").state_dict) == set(base)


def test_titles_are_known_behind_any_prefix_and_only_from_all_marks():
    names = [f"module.{name}" for name in other_kinds.blip_vision()]
    assert title_of(names) == "BLIP"
    assert not title_of(name for name in names if not name.endswith("class_embedding"))
