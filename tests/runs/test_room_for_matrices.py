"""Matrix methods on networks other than CLIP: what they take is estimated, and what cannot fit is refused by name."""

from __future__ import annotations

import math
from pathlib import Path

import other_kinds
import pytest
from safetensors.torch import save_file

from merging.base.errors import MergingError
from merging.cli import run_and_export
from merging.models.families import LINEAR_MAPS
from merging.recipes.recipe import Recipe
from merging.study.runs import execute as module
from merging.study.runs.estimate import MERGING, estimate_run
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

MATRIX = ("drm", "tsv_m", "lot")


def recipe_of(kind: str, merge: str, tmp_path: Path, tokens: int | None = None) -> Recipe:
    """A recipe on files of this kind, whose token tables have so many rows."""
    base = other_kinds.pretrained(kind)
    if tokens is not None:
        tables = [name for name, value in base.items() if (value.dim() == 2 and "embed" in name) or "shared" in name]
        base |= {name: base[name].repeat(math.ceil(tokens / len(base[name])), 1)[:tokens] for name in tables}
    paths = {"pretrained": base, **{name: other_kinds.expert(base, n) for n, name in enumerate("ab", 1)}}
    for name, values in paths.items():
        save_file({key: value.clone() for key, value in values.items()}, tmp_path / f"{name}.safetensors")
    names = {name: str(tmp_path / f"{name}.safetensors") for name in "ab"}
    return Recipe.build(merge, {}, [], str(tmp_path / "pretrained.safetensors"), names)


@pytest.mark.parametrize("kind", ["T5", "Llama"])
def test_what_does_not_fit_is_named_before_anything_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, store = recipe_of(kind, "drm", tmp_path), Store(tmp_path / "store", libraries=())
    plan = estimate_run(open_inputs(recipe))
    free = max(plan.whole.values()) - 1
    largest = {name for name, size in plan.whole.items() if size > free}
    monkeypatch.setattr(module, "free_memory", lambda: free)
    monkeypatch.setattr(OpenedRecipe, "digests", lambda *_: pytest.fail("the files were read"))
    with pytest.raises(MergingError) as refused:
        execute(recipe, store, evaluate=False, context=Context(device="cpu"))
    said = str(refused.value)
    assert (
        said.startswith("Memory is too small for tensors that DRM cannot merge in pieces: ")
        and " are free. Free" in said
    )
    assert next(name for name in plan.whole if name in largest) in said
    monkeypatch.setattr(module, "free_memory", lambda: free + 1)
    with pytest.raises(pytest.fail.Exception, match="were read"):  # it fits
        execute(recipe, store, evaluate=False, context=Context(device="cpu"))


@pytest.mark.parametrize("merge", MATRIX)
def test_tables_of_tokens_are_no_matrices(merge: str, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    few = estimate_run(open_inputs(recipe_of("Llama", merge, tmp_path / "few")))
    opened = open_inputs(recipe_of("Llama", merge, tmp_path, 300_000))
    many = estimate_run(opened)
    assert "model.embed_tokens.weight" in few.whole and "model.embed_tokens.weight" not in many.whole
    linear = [p for p in opened.pretrained.parameters if p.role in LINEAR_MAPS]
    assert few.matrices == many.matrices == len(linear) > 0
    assert many.anonymous_bytes < 4 * (1 << 20) * 3 * 4 * 4 + few.anonymous_bytes
    more = many.work[MERGING] - few.work[MERGING]
    assert more == pytest.approx(
        estimate_run(open_inputs(recipe_of("Llama", "weight_averaging", tmp_path, 300_000))).work[MERGING]
        - estimate_run(open_inputs(recipe_of("Llama", "weight_averaging", tmp_path / "few"))).work[MERGING]
    )


def test_long_merges_of_matrices_say_what_they_take_before_they_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, store = recipe_of("T5", "drm", tmp_path), Store(tmp_path / "store", libraries=())
    execute(recipe, store, evaluate=False, announce=run_and_export.print_estimate, context=Context(device="cpu"))
    assert capsys.readouterr().err == ""  # it takes no time
    monkeypatch.setattr(run_and_export, "LONG_MERGE_SECONDS", 0.0)
    execute(recipe, Store(tmp_path / "other", libraries=()), evaluate=False, announce=run_and_export.print_estimate)
    said = capsys.readouterr().err
    assert said.startswith("The merge decomposes 32 matrices: about ") and said.endswith("of memory.\n")
