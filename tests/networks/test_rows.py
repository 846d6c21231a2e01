"""Every kind of network in the files of its own library: opened, fitted, merged, exported and loaded by the library."""

from __future__ import annotations

import family_files
import pytest
import torch
from family_files import EVERY_KIND, KINDS

import merging
from merging.models.families import UNMERGED
from merging.models.formats.model_sources import open_checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.network_facts import title_of
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


def is_like(state, opened):
    """Whether a state dict has the names, order, shapes and dtypes of a file, and finite numbers."""
    return list(state) == list(opened.infos) and all(
        (tuple(value.shape), value.dtype) == (opened.infos[name].shape, opened.infos[name].dtype)
        and bool(value.isfinite().all())
        for name, value in state.items()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_library_are_recognized_and_fit(kind, files_of):
    base, experts = files_of(kind)
    opened = open_checkpoint(base)
    towers = {}
    for p in opened.parameters:
        if p.block is not None:
            towers.setdefault(p.tower, set()).add(p.block)
    assert {tower: len(blocks) for tower, blocks in towers.items()} == KINDS[kind].towers
    assert title_of(opened.infos) == KINDS[kind].said
    report = check_fit(base, experts)
    assert report.ok and report.tensors == len(opened.infos)
    assert not any("output projection" in note for note in report.notes)


@EVERY_KIND
def test_the_mean_is_what_the_library_computes_from_weights_put_in_by_hand(kind, files_of, tmp_path):
    base, experts = files_of(kind)
    places = {name: str(path) for name, path in experts.items()}
    recipe = Recipe.build("weight_averaging", pretrained=str(base), experts=places)
    run = execute(recipe, Store(tmp_path / "store", libraries=()), evaluate=False, context=Context(device="cpu"))
    export(run, tmp_path / "out", to="hf")
    written, was = open_checkpoint(tmp_path / "out"), open_checkpoint(base)
    assert sorted(written.infos) == sorted(was.infos) and dict(written.infos) == dict(was.infos)
    merged = family_files.load(kind, tmp_path / "out")
    others = [family_files.load(kind, path) for path in experts.values()]
    by_hand = family_files.average_by_hand(family_files.load(kind, base), others)
    given = KINDS[kind].given()
    results = zip(*(family_files.outputs(model, given) for model in (merged, by_hand, others[0])), strict=True)
    differs = False
    for value, expected, expert in results:
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
        differs |= not torch.allclose(value, expert, rtol=1e-3, atol=1e-3)
    assert differs


@EVERY_KIND
def test_a_matrix_method_with_scales_by_depth_keeps_names_shapes_types_and_order(kind, files_of):
    base, experts = files_of(kind)
    result = merging.merge(base, experts, "tsv_m", {"scaling": 1.0}, edits=["lines"], device="cpu")
    opened = open_checkpoint(base)
    assert is_like(result.state_dict, opened)
    mean = merging.merge(base, experts, "weight_averaging", edits=["lines"], device="cpu").state_dict
    merged = {p.name: p for p in opened.parameters if p.role not in UNMERGED}
    moved = {name for name, value in result.state_dict.items() if not torch.allclose(value, mean[name], atol=1e-6)}
    assert {"linear"} <= {str(merged[name].role) for name in moved} <= {"linear", "embedding"}
    share = sum(opened.infos[name].numel for name in moved) / sum(opened.infos[name].numel for name in merged)
    assert any(warning.startswith("TSV-M treats ") for warning in result.warnings) == (share < 0.5)
