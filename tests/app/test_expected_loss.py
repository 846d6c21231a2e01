"""Expected loss on the Merge page where something else than the chosen experts cannot be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from page_harness import find_buttons, words

from merging.base.errors import RecipeError
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run import Run

ON = {"chain": "ties", "expected_loss": "true"}


def test_a_damaged_expert_that_is_not_chosen_leaves_the_run_button(
    open_app: Any, library: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(library, tmp_path / "damaged"))
    *first, last = Benchmark.load(folder).experts
    (folder / "models" / f"{last}.safetensors").write_bytes(b"xx")
    at = open_app("merge", folder, experts=",".join(first[:2]), **ON)
    assert not at.exception and "No expected loss. " in words(at) and find_buttons(at, "Run")


def test_a_run_of_an_unknown_method_leaves_the_run_button(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: Run) -> None:
        raise RecipeError("There is no method zzz.")

    experts = ",".join(list(Benchmark.load(library).experts)[:2])
    monkeypatch.setattr("merging.study.runs.edit_pairs.read_recipe", lambda run: None)
    monkeypatch.setattr(Run, "recipe", property(refuse))
    at = open_app("merge", library, experts=experts, **ON)
    assert not at.exception and find_buttons(at, "Run") and "No expected loss: pairs and triples" in words(at)
