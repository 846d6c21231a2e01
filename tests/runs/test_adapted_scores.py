"""Runs of chains that learn: what they keep, what their facts say, and how they pause and go on."""

from __future__ import annotations

import json

import pytest

from merging.base.errors import Cancelled, NeedsError, Paused
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import ADAPTING, MERGING, estimate_run
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store

SHORT = {"steps": 6, "batch": 4, "lr": 0.01}
ADAPTS = {"surgery": {"steps": 40, "rank": 4}, "wemoe": {"steps": 3, "batch": 4}, "twin": {"steps": 20},
          "mass": {"threshold": 0.3}}  # fmt: skip


@pytest.fixture
def chain(tiny_benchmark):
    def build(merge="adamerging", params=SHORT, adapt=None, **test_data):
        settings = {"test_data": test_data, "exemplars": {"per_task": 4}, "adapt": adapt}
        return Recipe.build(merge, params, [], tiny_benchmark.pretrained, tiny_benchmark.experts, **settings)

    return build


@pytest.fixture
def adapted(chain):
    """A recipe with an adapt on task arithmetic."""
    return lambda key, **test_data: chain("task_arithmetic", {}, (key, ADAPTS[key]), **test_data)


def model_bytes(run):
    return {name: run.file(name).read_bytes() for name in (*run.models.values(), *run.modules)}


def after(checks):
    """A request that is made at the call after so many."""
    answers = iter([False] * checks)
    return lambda: next(answers, True)


def test_a_run_says_on_which_images_it_learned(chain, run_it, recipe):
    held_out, on_test = run_it(chain()), run_it(chain(split="reporting"))
    assert (held_out.adapted_on, on_test.adapted_on, run_it(recipe).adapted_on) == ("choosing", "reporting", None)
    assert (held_out.adapts_on_test, on_test.adapts_on_test, held_out.needs_task) == (False, True, False)
    assert held_out.id != on_test.id
    assert {"coefficients", "learning"} <= set(held_out.tables)
    kept = {path.name for path in (held_out.path / "tables").iterdir()}
    assert {"coefficients.csv", "coefficient_steps.csv.gz"} <= kept and "coefficient_steps.csv" not in kept
    assert set(held_out.table("coefficient_steps")["step"]) == {0, 6}


def test_facts_of_runs_that_learn_nothing_are_as_before(run_it, recipe):
    facts = json.loads(run_it(recipe).file("run.json").read_bytes())
    assert {"adapt", "modules", "adapted_on", "images"}.isdisjoint(facts)


@pytest.mark.parametrize("stop", ["pause", "cancel"])
def test_a_paused_run_goes_on_to_the_same_bytes_and_a_cancelled_one_begins_anew(chain, run_it, store, tmp_path, stop):
    whole = run_it(chain(), store=Store(tmp_path / "other", libraries=()))
    with pytest.raises(Paused if stop == "pause" else Cancelled):
        run_it(chain(), **{stop: after(4 if stop == "pause" else 40)})
    kept = store.learning_file(whole.id)
    assert kept.exists() == (stop == "pause")
    assert not store.list_runs()
    assert model_bytes(run_it(chain())) == model_bytes(whole)
    assert not kept.exists()


@pytest.mark.parametrize("key", list(ADAPTS))
def test_modules_are_stored_and_scored(adapted, chain, run_it, key):
    run, plain = run_it(adapted(key)), run_it(chain("task_arithmetic", {}))
    assert run.adapt == key
    assert {"modules.json", *run.models.values()} <= set(model_bytes(run))
    assert "modules" in run.tables
    assert run.adapted_on == {"twin": "exemplars", "mass": None}.get(key, "choosing")
    assert ("task_unknown" in run.tables) == (key in {"twin", "mass"})
    assert run.needs_task == (key == "surgery")
    assert run.scores is not None and plain.scores is not None
    outside = ~run.scores["task"].isin(list(run.experts))
    same = run.scores["correct"] == plain.scores["correct"]
    if key == "surgery":
        assert same[outside].all()  # out of domain there is no module
    modules = run.open_modules()
    assert modules is not None and modules.tasks == run.experts


def test_scores_in_domain_go_through_the_module_of_the_task_itself(adapted, run_it, tiny_benchmark):
    run = run_it(adapted("surgery"))
    modules, scores = run.open_modules(), run.scores.set_index(["task", "split"])
    for key in run.experts:
        images, labels = tiny_benchmark.load_images(key, "reporting")
        features = modules.features(tiny_benchmark.preprocess(images), key)
        right = (features @ tiny_benchmark.load_head(key).T).argmax(dim=1).numpy() == labels
        assert scores.loc[(key, "reporting"), "correct"] == right.sum()


@pytest.mark.parametrize("key", list(ADAPTS))
def test_without_weights_there_are_no_modules_either(adapted, run_it, store, key):
    run = run_it(adapted(key), keep_model=False)
    assert (run.models, run.modules, run.has_model) == ({}, (), False)
    assert not (run.path / "modules").exists()
    whole = run_it(adapted(key), need_model=True)
    assert whole.has_model
    store.delete_models(whole.id)
    again = store.get_run(whole.id)
    assert not again.has_model and not (again.path / "modules").exists() and again.has_scores


def test_scores_are_added_to_a_stored_run_through_its_modules(adapted, run_it):
    bare = run_it(adapted("surgery"), evaluate=False)
    assert not bare.has_scores
    scored = run_it(adapted("surgery"))
    assert scored.id == bare.id
    assert model_bytes(scored) == model_bytes(bare)
    assert (scored.adapt, scored.modules, scored.adapted_on) == (bare.adapt, bare.modules, bare.adapted_on)


@pytest.mark.parametrize("split", ["choosing", "reporting"])
def test_labels_of_test_data_are_not_even_read(chain, run_it, monkeypatch, split):
    def labels(self, key, split):
        raise AssertionError("labels were read")

    monkeypatch.setattr(Benchmark, "load_images", labels)
    for recipe in (chain(split=split), chain(adapt=("surgery", ADAPTS["surgery"]), split=split)):
        assert run_it(recipe, evaluate=False).adapted_on == split


def test_test_data_are_those_of_the_split_and_of_the_merged_tasks(tiny_benchmark):
    experts = list(tiny_benchmark.experts)[:2]
    drawn = tiny_benchmark.test_data(experts, "reporting", 3, 1)
    assert list(drawn) == experts
    assert {len(task.images) for task in drawn.values()} == {3}
    assert all(task.labels is None and task.head is not None for task in drawn.values())
    whole = tiny_benchmark.test_data(experts, "reporting")
    assert len(whole[experts[0]].images) == tiny_benchmark.count_images(experts[0], "reporting")


def test_experts_that_are_no_tasks_are_named(chain, run_it, tiny_benchmark):
    first, *rest = tiny_benchmark.experts.items()
    recipe = Recipe.build(
        "adamerging", SHORT, [], tiny_benchmark.pretrained, {"one": first[1], "two": rest[0][1], rest[1][0]: rest[1][1]}
    )
    with pytest.raises(NeedsError, match="Missing: images for one, two"):
        run_it(recipe)


def test_learning_is_in_the_estimate(chain, adapted, tiny_benchmark):
    def work(recipe):
        return estimate_run(open_inputs(recipe, benchmark=tiny_benchmark), tiny_benchmark).work

    assert work(chain(params=SHORT | {"steps": 600}))[MERGING] > 10 * work(chain())[MERGING]
    assert work(chain("task_arithmetic", {}))[ADAPTING] == 0
    longer = chain("task_arithmetic", {}, ("wemoe", ADAPTS["wemoe"] | {"steps": 300}))
    assert work(longer)[ADAPTING] == 100 * work(adapted("wemoe"))[ADAPTING] > 0
    assert work(adapted("surgery"))[ADAPTING] > 0


def test_what_may_be_wrong_is_said(chain, run_it):
    run = run_it(chain(adapt=("wemoe", ADAPTS["wemoe"])))
    assert sum("fewer than 32 images to learn from" in text for text in run.warnings) == 1  # of merge and adapt
    assert any("the MLPs that AdaMerging learns are not used" in text for text in run.warnings)


@pytest.mark.parametrize("key", ["twin", "mass"])
def test_a_router_that_names_tasks_chooses_the_head(adapted, run_it, tiny_benchmark, key):
    run = run_it(adapted(key))
    modules, table = run.open_modules(), run.table("task_unknown")
    assert set(table["task"]) == set(run.experts) and set(table["split"]) == {"choosing", "reporting"}
    heads = [tiny_benchmark.load_head(task) for task in modules.tasks]
    for row in table.itertuples():
        images, labels = tiny_benchmark.load_images(row.task, row.split)
        batch = tiny_benchmark.preprocess(images)
        correct = own = 0
        for feature, named, label in zip(modules.features(batch), modules.named_tasks(batch), labels, strict=True):
            unit = feature / feature.norm()
            answers = [(float(c), k, i) for k, head in enumerate(heads) if named[k] for i, c in enumerate(head @ unit)]
            _, head, index = max(answers)
            own += modules.tasks[head] == row.task
            correct += modules.tasks[head] == row.task and index == label
        assert (row.correct, row.n) == (correct, len(labels)) and row.own_head == pytest.approx(own / len(labels))
        assert row.low <= row.accuracy == correct / len(labels) <= row.high
        assert correct <= run.scores.set_index(["task", "split"]).loc[(row.task, row.split), "correct"]
    assert json.loads(run.file("run.json").read_bytes())["adapt"] == key


def test_it_is_scored_only_where_every_task_has_a_head(adapted, run_it, tiny_benchmark):
    one, *rest = tiny_benchmark.experts.items()
    recipe = Recipe.build("tsv_m", {}, [], tiny_benchmark.pretrained, {"other": one[1], **dict(rest)}, adapt="mass")
    run = run_it(recipe)
    assert run.has_scores and "task_unknown" not in run.tables
    assert any(
        "There is no score for images whose task is unknown" in text and "other" in text for text in run.warnings
    )
