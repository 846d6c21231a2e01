"""Previews: exact, on the choosing half only, and never again what was computed before."""

from __future__ import annotations

import numpy as np
import pytest

import merging
from merging.base.errors import Cancelled, CheckpointError, NeedsError, StoreError, TaskError
from merging.engine import run as engine
from merging.engine.evaluation.evaluate import evaluate, list_task_models, predict_splits
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.paired_scores import compare_models
from merging.recipes.recipe import Recipe
from merging.study.previews import moments_in_memory
from merging.study.previews.preview import Preview
from merging.study.previews.preview_samples import PreviewSample
from merging.study.previews.previewer import Previewer
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

CHAINS = {
    "task_arithmetic": ("task_arithmetic", []),
    "ties": ("ties", []),
    "lwptv": ("task_arithmetic", ["lwptv"]),
    "lot": ("lot", []),
    "emr": ("emr", []),
}


def recipe_of(benchmark: Benchmark, chain: str = "task_arithmetic", rules=None, when="after", **params) -> Recipe:
    merge, edits = CHAINS[chain]
    manual = [("manual", {"rules": rules, "when": when})] if rules is not None else []
    exemplars = {"per_task": 6} if chain == "lot" else None
    return Recipe.build(
        merge, params, [*edits, *manual], benchmark.pretrained, benchmark.experts, chain, exemplars=exemplars
    )


def previewed(previewer: Previewer, recipe: Recipe, *reference) -> Preview:
    return previewer.begin(recipe, PreviewSample(), *reference).finish()


@pytest.mark.parametrize("chain", CHAINS)
def test_its_answers_are_those_of_a_stored_run(chain, tiny_benchmark, tmp_path):
    recipe = recipe_of(tiny_benchmark, chain)
    run = execute(recipe, Store(tmp_path, libraries=()), benchmark=tiny_benchmark, context=Context(device="cpu"))
    preview = merging.preview(recipe, benchmark=tiny_benchmark, device="cpu")
    table = preview.tables["answers"]
    scores = run.scores[run.scores["split"] == "choosing"].set_index("task")
    assert (table.groupby("task")["right"].mean() - scores["accuracy"]).abs().max() < 1e-12
    assert preview.n == scores["n"].sum() and preview.half == "choosing"
    if not run.per_task:
        parts = list_task_models({"merged": run.model_path}, tiny_benchmark)
        for answer in predict_splits(parts, tiny_benchmark, ("choosing",), Context(device="cpu")):
            rows = table[table["task"] == answer.task.key]
            assert (rows["predicted"].to_numpy() == answer.predicted[rows["place"].to_numpy()]).all()
            assert (rows["label"].to_numpy() == answer.labels[rows["place"].to_numpy()]).all()


def test_the_reference_is_scored_on_the_same_images(tiny_benchmark):
    sample, one, other = PreviewSample(7, 4), recipe_of(tiny_benchmark), recipe_of(tiny_benchmark, "ties")
    preview = merging.preview(one, sample, other, benchmark=tiny_benchmark)
    assert preview.reference == "ties" and preview.seed == 4 and preview.sample == sample
    swapped = merging.preview(other, sample, one, benchmark=tiny_benchmark)
    answered, back = preview.tables["answers"], swapped.tables["answers"]
    assert (answered["right"] == back["reference_right"]).all() and (answered["place"] == back["place"]).all()
    assert (answered["right"] != answered["reference_right"]).any()
    right, before = (
        {task: rows[name].to_numpy() for task, rows in answered.groupby("task", sort=False)}
        for name in ("right", "reference_right")
    )
    again = compare_models(right, before, list(tiny_benchmark.experts))
    assert preview.changes.drop(columns="title").equals(again)


def test_without_a_reference_it_is_the_pretrained_model(tiny_benchmark):
    preview = merging.preview(recipe_of(tiny_benchmark), benchmark=tiny_benchmark, device="cpu")
    scores = evaluate(
        tiny_benchmark.pretrained, tiny_benchmark, splits=("choosing",), context=Context(device="cpu")
    ).set_index("task")
    own = preview.tables["answers"].groupby("task")["reference_right"].mean()
    assert preview.reference == "Pretrained" and (own - scores["accuracy"]).abs().max() < 1e-12


def test_the_reporting_half_is_never_read(tiny_benchmark, monkeypatch):
    read, asked = Benchmark.load_images, []
    monkeypatch.setattr(Benchmark, "load_images", lambda own, key, split: asked.append(split) or read(own, key, split))
    merging.preview(recipe_of(tiny_benchmark, "lot"), benchmark=tiny_benchmark, device="cpu")
    assert set(asked) == {"choosing", "exemplars"}


def test_stages_are_previews_of_smaller_samples(tiny_benchmark):
    previewer = Previewer(tiny_benchmark, "cpu")
    one = previewer.begin(recipe_of(tiny_benchmark), PreviewSample(None, 3))
    sizes = []
    for stage in filter(None, one.previews()):
        sizes.append(stage.sample.per_task)
        alone = merging.preview(recipe_of(tiny_benchmark), stage.sample, benchmark=tiny_benchmark, device="cpu")
        assert stage.changes.equals(alone.changes)
    assert sizes == [8, 16, None]  # 20 images a task: no stage of 32


@pytest.mark.full
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("rules", ["b1=0", "b0=0.5", "r.norm_scale/b1=2+t.proj=0"])
def test_what_did_not_change_is_not_computed_again(chain, rules, tiny_benchmark, monkeypatch):
    previewer, recipe = Previewer(tiny_benchmark, "cpu"), recipe_of(tiny_benchmark, chain)
    changed = recipe_of(tiny_benchmark, chain, rules)
    previewed(previewer, recipe)
    written = []
    run = engine.run_recipe
    monkeypatch.setattr(engine, "run_recipe", lambda *args, **kw: written.append(kw["only"]) or run(*args, **kw))
    starts = []
    features = previewer.tokens.features

    def watched(encoder, names, batch, *rest):
        starts.append(previewer.tokens.find_start(names, batch))
        return features(encoder, names, batch, *rest)

    monkeypatch.setattr(previewer.tokens, "features", watched)
    warm = previewed(previewer, changed, recipe)
    assert set(starts) == {1 if "b0" in rules else 2}
    assert all(only is not None and 0 < len(only) < 14 for only in written) and len(written) == (rules != "b1=0")
    monkeypatch.undo()
    fresh = previewed(Previewer(tiny_benchmark, "cpu"), changed, recipe)
    assert warm.tables["answers"].equals(fresh.tables["answers"]) and warm.changes.equals(fresh.changes)


@pytest.mark.parametrize("chain", ["task_arithmetic", "ties", "emr"])
def test_models_made_by_parts_are_the_engine_s(chain, tiny_benchmark):
    """Also factors before the merge, which move every tensor of a merge with a global threshold."""
    for rules, when in (("b0=0.5+b1=0", "after"), ("b0=0.5+e.flags=0", "before"), ("s.output=0", "before")):
        previewer = Previewer(tiny_benchmark, "cpu")
        changed = recipe_of(tiny_benchmark, chain, rules, when)
        previewer.begin(recipe_of(tiny_benchmark, chain), PreviewSample(2))
        models = previewer.begin(changed, PreviewSample(2)).merges[0].models
        opened = open_inputs(changed, benchmark=tiny_benchmark)
        whole = engine.run_recipe(changed, opened.pretrained, opened.experts, context=Context(device="cpu"))
        for name, state in (whole.task_state_dicts or {"merged": whole.state_dict}).items():
            assert all((models[name].tensors[key] == value).all() for key, value in state.items()), (rules, name)


def test_a_stored_run_with_weights_is_not_merged_again(tiny_benchmark, tmp_path, monkeypatch):
    store = Store(tmp_path, libraries=())
    run = execute(recipe_of(tiny_benchmark, "lot"), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    monkeypatch.setattr(engine, "run_recipe", None)
    monkeypatch.setattr(moments_in_memory, "MAX_BYTES", 0)
    put_back = recipe_of(tiny_benchmark, "lot", "b0=0")
    preview = merging.preview(put_back, 8, run, benchmark=tiny_benchmark, device="cpu")
    assert preview.reference == "lot" and preview.n == 48


def test_a_reference_that_is_no_merge_or_has_other_files_is_refused(tiny_benchmark, tmp_path):
    store = Store(tmp_path, libraries=())
    expert = next(
        run
        for run in find_references(store, tiny_benchmark, context=Context(device="cpu")).values()
        if run.kind == "expert"
    )
    with pytest.raises(StoreError, match="is not a merge"):
        merging.preview(recipe_of(tiny_benchmark), 8, expert, benchmark=tiny_benchmark)
    odd = recipe_of(tiny_benchmark)
    run = execute(odd, store, benchmark=tiny_benchmark, keep_model=False, context=Context(device="cpu"))
    object.__setattr__(run, "id", "0" * 12)
    with pytest.raises(StoreError, match="no longer those of this run"):
        merging.preview(recipe_of(tiny_benchmark), 8, run, benchmark=tiny_benchmark)


def test_exemplars_whose_moments_cannot_be_kept_are_refused(tiny_benchmark, monkeypatch):
    recipe = recipe_of(tiny_benchmark, "lot")
    previewer = Previewer(tiny_benchmark, "cpu")
    previewed(previewer, recipe)
    monkeypatch.setattr(moments_in_memory, "CapturedInputs", None)  # they are at hand now
    previewed(previewer, recipe_of(tiny_benchmark, "lot", scaling=0.7))
    monkeypatch.setattr(moments_in_memory, "MAX_BYTES", 10)
    with pytest.raises(NeedsError, match="too much for a preview"):
        merging.preview(recipe, 8, benchmark=tiny_benchmark)
    gradients = Recipe.build("fisher", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    with pytest.raises(NeedsError, match="gradients of exemplars"):
        merging.preview(gradients, 8, benchmark=tiny_benchmark)


def test_models_that_do_not_fit_are_refused(tiny_benchmark, tmp_path):
    with pytest.raises(TaskError, match="cannot be previewed on this benchmark"):
        merging.preview(recipe_of(tiny_benchmark), 8)  # the bundled images are of another size
    gone = Recipe.build("ties", {}, [], str(tmp_path / "gone"), {"a": str(tmp_path / "a")})
    with pytest.raises(CheckpointError):
        merging.preview(gone, 8, benchmark=tiny_benchmark)


def test_it_stops_between_batches(tiny_benchmark, monkeypatch):
    asked: list[bool] = []
    context = Context("cpu", cancel=lambda: bool(asked))
    one = Previewer(tiny_benchmark, "cpu").begin(recipe_of(tiny_benchmark), PreviewSample(), context=context)
    previews = one.previews()
    assert next(previews) is None
    asked.append(True)
    with pytest.raises(Cancelled):
        next(previews)
    with pytest.raises(Cancelled):
        merging.preview(recipe_of(tiny_benchmark), benchmark=tiny_benchmark, cancel=lambda: True)


def test_a_preview_is_no_run(tiny_benchmark, tmp_path):
    """Nothing is written, and nothing that takes scores takes it."""
    from merging.images.benchmarks.metrics import summarize

    store = Store(tmp_path, libraries=())
    preview = merging.preview(recipe_of(tiny_benchmark), 8, benchmark=tiny_benchmark, device="cpu")
    assert isinstance(preview, merging.Preview) and not hasattr(preview, "id") and not hasattr(preview, "scores")
    assert store.list_runs() == [] and list(tmp_path.iterdir()) == []
    with pytest.raises(KeyError):
        summarize(preview.changes, list(tiny_benchmark.experts))


def test_it_survives_the_way_between_processes(tiny_benchmark):
    preview = merging.preview(recipe_of(tiny_benchmark), 8, benchmark=tiny_benchmark, device="cpu")
    again = Preview.from_plain(preview.to_plain())
    assert again.changes.equals(preview.changes) and repr(again.to_plain()) == repr(preview.to_plain())
    assert np.isfinite(again.changes["difference"]).all()


def test_what_learns_has_no_preview(tiny_benchmark, tmp_path):
    models = (tiny_benchmark.pretrained, tiny_benchmark.experts)
    learning = Recipe.build("adamerging", {"steps": 1}, [], *models)
    adapted = Recipe.build("ties", {}, [], *models, adapt=("surgery", {"steps": 1}))
    for recipe, title in ((learning, "AdaMerging"), (adapted, "Surgery")):
        with pytest.raises(NeedsError, match=f"{title} learns from images, which takes longer than a preview. Run it"):
            merging.preview(recipe, benchmark=tiny_benchmark, device="cpu")
    run = execute(adapted, Store(tmp_path, libraries=()), benchmark=tiny_benchmark, context=Context(device="cpu"))
    with pytest.raises(NeedsError, match="has modules on top of its merged model"):
        merging.preview(recipe_of(tiny_benchmark), reference=run, benchmark=tiny_benchmark, device="cpu")
