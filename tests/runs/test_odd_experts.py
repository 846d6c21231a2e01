"""Experts that probably do not belong: merges go on with a warning, strict ones are refused before any work."""

from __future__ import annotations

import json
import logging

import odd_experts
import pytest
import tiny
import torch

import merging
from merging.base.errors import CompatibilityError
from merging.engine import run as engine
from merging.recipes.recipe import Recipe
from merging.study.runs.run import FACTS
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture
def odd(tmp_path):
    files = odd_experts.write(tmp_path / "odd")
    return Recipe.build("ties", {}, [], str(files.pretrained), {n: str(path) for n, path in files.experts.items()})


def test_a_result_names_them_and_its_numbers_stay(caplog):
    base, experts = odd_experts.family()
    with caplog.at_level(logging.WARNING, "merging"):
        result = merging.merge(base, experts, "ties", device="cpu")
    assert not odd_experts.list_unwarned("\n".join(result.warnings)) and len(result.warnings) == 3
    assert [record.getMessage() for record in caplog.records] == list(result.warnings)
    opened = {name: tiny.checkpoint(state) for name, state in experts.items()}
    unchecked = engine.run_recipe(Recipe.build("ties"), tiny.checkpoint(base), opened, context=Context(device="cpu"))
    assert all(torch.equal(result.state_dict[name], unchecked.state_dict[name]) for name in base)


def test_experts_that_belong_bring_no_warning(caplog):
    base, experts = tiny.family()
    result = merging.merge(base, experts, "ties", device="cpu", strict=True)
    assert result.warnings == () and not caplog.records


def test_a_doubt_about_names_and_shapes_is_said_once():
    base, experts = tiny.family(("a",))
    del base["visual.proj"]
    (warning,) = merging.merge(base, experts, "ties", device="cpu").warnings
    assert warning.startswith("a has an output projection (visual.proj) and the pretrained model has none")


def test_a_strict_merge_is_refused_before_any_work(monkeypatch):
    base, experts = odd_experts.family()
    monkeypatch.setattr(engine, "run_recipe", None)
    with pytest.raises(CompatibilityError, match="Nothing was merged") as raised:
        merging.merge(base, experts, "ties", device="cpu", strict=True)
    assert not odd_experts.list_unwarned(str(raised.value)) and len(raised.value.report.doubts) == 3


def test_what_is_not_merged_may_hold_anything():
    """The sample sees unused text tensors, too; numbers that are not finite matter only where they are merged."""
    base, experts = tiny.family()
    text = {"token_embedding.weight": torch.ones(20, 8), "text_projection": torch.ones(8, 8)}
    carrying = {name: state | text for name, state in experts.items()}
    carrying["flags"]["text_projection"] = torch.full((8, 8), float("nan"))
    result = merging.merge(base | text, carrying, "ties", device="cpu", strict=True)
    assert torch.equal(result.state_dict["text_projection"], text["text_projection"])


def test_names_cannot_fake_lines_in_the_log(caplog):
    base, experts = odd_experts.family()
    merging.merge(base, {"good": experts["good"], "x\nall is well\u202e": experts["stranger"]}, "ties", device="cpu")
    (record,) = caplog.records
    assert record.getMessage().startswith("x\\nall is well\\u202e does not look fine-tuned")


def test_a_run_keeps_the_warnings_and_its_id(odd, run_it, store):
    heard = []
    run = run_it(odd, evaluate=False, warn=heard.append)
    written = json.loads((run.path / FACTS).read_bytes())
    assert heard == written["warnings"] == list(run.cautions) and not odd_experts.list_unwarned("\n".join(heard))
    heard.clear()
    again = run_it(odd, warn=heard.append, evaluate=False)
    assert (again.id, again.warnings, heard) == (run.id, run.warnings, [])  # nothing is computed, nothing checked


@pytest.mark.full
def test_what_has_nothing_to_do_is_a_remark(tmp_path, run_it, tiny_benchmark):
    half = tiny.write_family(tmp_path / "half", torch.float16)
    whole = tiny.write_family(tmp_path / "whole", torch.float32)
    recipe = Recipe.build("ties", {}, [], str(whole.pretrained), {n: str(path) for n, path in half.experts.items()})
    run = run_it(recipe, evaluate=False)
    assert run.cautions == () and len(run.remarks) == len(half.experts)
    assert all(": precision: " in remark for remark in run.remarks)
    assert run_it(recipe, benchmark=tiny_benchmark).warnings == run.warnings


def test_warnings_survive_when_scores_are_added(odd, run_it, tiny_benchmark):
    run = run_it(odd, evaluate=False)
    scored = run_it(odd, benchmark=tiny_benchmark)
    assert scored.has_scores and scored.id == run.id and scored.cautions == run.cautions


def test_a_strict_run_is_refused_and_leaves_nothing(odd, run_it, tmp_path):
    with pytest.raises(CompatibilityError, match="stranger does not look fine-tuned"):
        run_it(odd, store=Store(tmp_path / "strict", libraries=()), strict=True)
    assert not [path for path in (tmp_path / "strict").rglob("*") if path.is_file()]


def test_a_run_that_is_stored_is_refused_too_if_strict(odd, run_it):
    run_it(odd, evaluate=False)
    with pytest.raises(CompatibilityError):
        run_it(odd, evaluate=False, strict=True)
