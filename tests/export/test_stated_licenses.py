"""Licenses as a benchmark's models and data sets state them: in a run, in its card and in a report."""

from __future__ import annotations

import json
import shutil

import pytest
from peers import front

from app.reading import report_sources
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.manifest import MADE_BY
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.tasks.context import Context

COMMIT = "0123456789ab"
STATED = {
    "test set MNIST (ylecun/mnist)": f"mit (read 2026-11-23 at commit {COMMIT})",
    "expert for DTD (a/b)": f"none stated (read 2026-11-23 at commit {COMMIT})",
    "x\n# y | <b>": "[l](http://e) \u202e | **mit**",
}


@pytest.fixture(scope="module")
def licensed(tiny_folder, tmp_path_factory):
    """The tiny benchmark with a manifest that states licenses."""
    folder = tmp_path_factory.mktemp("licensed") / "benchmark"
    shutil.copytree(tiny_folder, folder)
    manifest = {"made_by": MADE_BY, "files": {}, "tasks": {}, "licenses": STATED}
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return Benchmark.load(folder)


def test_cards_and_reports_state_what_was_read(licensed, run, store, tmp_path):
    recipe = Recipe.build("weight_averaging", {}, [], licensed.pretrained, licensed.experts, "A title")
    made = execute(recipe, store, benchmark=licensed, context=Context(device="cpu"))
    assert made.licenses == STATED == store.find(made.id).licenses
    export(made, tmp_path / "hf")
    head, text = front(tmp_path / "hf")
    assert "license" not in head  # that of a merged model is for its maker to state
    assert "Its license follows from those of its parents. Their cards state:" in text
    plain = text.replace("\\", "")
    for name, stated in list(STATED.items())[:2]:
        assert f"| {name} | {stated} |" in plain
    assert "\n# y" not in text and "](http" not in text and "\u202e" not in text and "<b>" not in text
    facts = dict(report_sources.make_source(made).facts)
    assert facts["Licenses"] == "; ".join(f"{name}: {stated}" for name, stated in STATED.items())
    export(run, tmp_path / "other")
    assert "Its license follows from those of its parents, which were not read." in front(tmp_path / "other")[1]
    assert "Licenses" not in dict(report_sources.make_source(run).facts)
