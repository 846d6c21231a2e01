"""A run that merged several checkpoints of one expert, on the pages that show runs and their experts."""

from __future__ import annotations

import pytest
from page_harness import words

from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.runs.execute import execute
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

CPU = Context(device="cpu")
TITLE = "Two runs of a task"
PLACES = [
    ("run", {}),
    ("scores", {}),
    ("scores", {"scores_view": "tasks"}),
    ("models", {}),
    ("models", {"models_view": "runs"}),
    ("conflicts", {}),
    ("conflicts", {"conflicts_view": "experts against experts"}),
    ("conflicts", {"conflicts_view": "spectra"}),
    ("drift", {}),
    ("masks", {}),
    ("learning", {}),
    ("compare", {}),
    ("image", {}),
    ("features", {}),
    ("sweeps", {}),
    ("partners", {}),
    ("methods", {"method": "model_stock"}),
]


@pytest.fixture
def page(open_app, tiny_benchmark, tmp_path):
    """A function that opens a page on such a run, and the run."""
    store = Store(tmp_path / "store", libraries=())
    find_references(store, tiny_benchmark, context=CPU)
    (first, path), (_, other), (second, own) = list(tiny_benchmark.experts.items())[:3]
    experts = {first: [path, other], second: own}
    recipe = Recipe.build("model_stock", {"across": "sum_of_tasks"}, [], tiny_benchmark.pretrained, experts, TITLE)
    run = execute(recipe, store, benchmark=tiny_benchmark, context=CPU)
    for key in ("pairs", "signs", "drift"):
        measure.measure(key, store, tiny_benchmark, run.id, context=CPU)

    def opened(name, **query):
        return open_app(name, tiny_benchmark.folder, **query)

    return opened, run


def said(at):
    """All text on the page, without the backslashes that keep it from being markup."""
    return words(at).replace("\\", "")


@pytest.mark.full
def test_every_page_opens_on_it(page):
    opened, run = page
    problems = []
    for name, query in PLACES:
        at = opened(name, run=run.id, **query)
        problems += [(name, query, found.value) for found in (*at.exception, *at.error)]
    assert not problems, "\n".join(map(str, problems))


def test_pages_count_experts_and_name_checkpoints(page):
    opened, run = page
    first, further, second = run.experts
    assert further == f"{first}#2" and second not in (first, further)
    text = said(opened("conflicts", run=run.id))
    assert "2 experts (3 checkpoints)" in text and ", checkpoint 2" in text
    assert "2 experts (3 checkpoints)" in said(opened("scores", runs=run.id))
