"""The second bundled team: its files, its references, what it shares with the first, and its library."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import merging
from merging.base import settings
from merging.base.errors import CheckpointError
from merging.engine.evaluation.image_features import compute_features, predict
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models import model_references
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.papers.claims import CLAIMS
from merging.recipes.presets import find_preset
from merging.study.analysis import measurement_store
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.reference_models import find_references
from merging.study.runs.run import PRECOMPUTED
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_session, sweep_storage
from merging.study.sweeps.known_points import KnownPoints
from sample_data import library
from sample_data.build import tables

FOLDER = settings.BUNDLED_TEAMS["gentle"]
MANIFEST = json.loads((FOLDER / "manifest.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def gentle() -> Benchmark:
    return Benchmark.load(FOLDER)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=(FOLDER / "runs",))


def relative_norm(expert: str, pretrained: str) -> float:
    base, tuned = open_checkpoint(pretrained).state_dict(), open_checkpoint(expert).state_dict()
    change = torch.cat([(tuned[name].float() - value.float()).flatten() for name, value in base.items()])
    return float(change.norm() / torch.cat([value.float().flatten() for value in base.values()]).norm())


@pytest.mark.parametrize("name", sorted(MANIFEST["files"]))
def test_every_file_is_the_one_in_the_manifest(name: str) -> None:
    content = (FOLDER / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == MANIFEST["files"][name]["sha256"]


def test_the_manifest_names_every_model() -> None:
    assert {f"models/{path.name}" for path in (FOLDER / "models").iterdir()} <= set(MANIFEST["files"])


def test_it_shares_images_heads_and_the_pretrained_model(gentle: Benchmark) -> None:
    first = Benchmark.load()
    assert gentle.tasks == first.tasks and gentle.digest != first.digest and gentle.multitask is None
    for task in first.tasks[::5]:
        assert np.array_equal(gentle.load_images(task.key, "choosing")[0], first.load_images(task.key, "choosing")[0])
        assert torch.equal(gentle.load_head(task.key), first.load_head(task.key))
        assert gentle.count_images(task.key, "reporting") == first.count_images(task.key, "reporting") > 0
    assert gentle.open_pretrained().digest == first.open_pretrained().digest


@pytest.mark.full
def test_its_task_vectors_are_about_half_as_long(gentle: Benchmark) -> None:
    ratios = [
        relative_norm(gentle.experts[key], gentle.pretrained) / relative_norm(expert, "bundled:pretrained")
        for key, expert in Benchmark.load().experts.items()
    ]
    assert 0.4 < np.mean(ratios) < 0.6 and max(ratios) < 0.8


def test_its_experts_are_merged_by_reference(gentle: Benchmark) -> None:
    experts = {name: gentle.experts[name] for name in ("street", "flags")}
    assert experts["street"] == "bundled:gentle/street"
    merged = merging.merge("bundled:gentle/pretrained", experts, merge="task_arithmetic").state_dict
    base = open_checkpoint("bundled:pretrained").state_dict()
    tuned = [open_checkpoint(expert).state_dict() for expert in experts.values()]
    name = "visual.transformer.resblocks.0.mlp.c_fc.weight"
    vectors = sum(one[name].float() - base[name].float() for one in tuned)
    scaling = find_preset("task_arithmetic").recipe("bundled:pretrained", experts).merge.params.values()["scaling"]
    assert torch.allclose(merged[name].float(), base[name].float() + scaling * vectors, atol=2e-4)


def test_its_references_travel_and_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_references.strip_folders("bundled:gentle/street") == "bundled:gentle/street"
    assert model_references.locate("bundled:gentle/street") == FOLDER / "models" / "street.npz"
    with pytest.raises(CheckpointError, match="no bundled team 'harsh'; there is: gentle"):
        model_references.locate("bundled:harsh/street")
    monkeypatch.setitem(settings.BUNDLED_TEAMS, "missing", FOLDER / "missing")
    with pytest.raises(CheckpointError, match="'missing' is not in the installed package"):
        model_references.locate("bundled:missing/street")
    with pytest.raises(CheckpointError, match="no bundled team"):
        model_references.locate("bundled:../../street")


def test_a_server_offers_both_teams_whichever_it_was_started_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert benchmark_folders.list_bundled() == {"default": settings.BUNDLED_FOLDER, "bundled:gentle": FOLDER}
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(FOLDER))
    assert benchmark_folders.list_bundled() == {"bundled": settings.BUNDLED_FOLDER, "default": FOLDER}
    assert benchmark_folders.find_folder("bundled", tmp_path) == settings.BUNDLED_FOLDER
    assert benchmark_folders.find_folder("bundled:harsh", tmp_path) is None
    assert benchmark_folders.find_folder("bundled:gentle", tmp_path) == FOLDER  # the server's own
    assert benchmark_folders.key_of(settings.BUNDLED_FOLDER, tmp_path) == "bundled"


@pytest.mark.full
def test_stored_experts_have_the_scores_of_the_library(gentle: Benchmark, store: Store) -> None:
    """The library's scores of the experts are those of the stored files, image by image."""
    runs = find_references(store, gentle, compute=False)
    for key in ("digits", "flags"):
        images, labels = gentle.load_images(key, "reporting")
        encoder = Encoder.from_checkpoint(open_checkpoint(gentle.experts[key]), fallback=gentle.pretrained_tower)
        right = predict(compute_features(encoder, gentle.preprocess(images)), gentle.load_head(key)) == labels
        scores = runs[key].scores.set_index(["task", "split"])
        assert int(right.sum()) == scores.loc[(key, "reporting"), "correct"]


@pytest.mark.full
def test_the_library_has_what_its_plan_says(gentle: Benchmark, store: Store) -> None:
    plan = library.plan_library(gentle)
    assert {one.key for one in plan.runs} == set(library.GENTLE_RUNS) and len(plan.runs) > 28
    recipes = {one.key: one.recipe(gentle.pretrained, gentle.experts) for one in plan.runs}
    runs = {key: open_inputs(recipe, benchmark=gentle).run_id() for key, recipe in recipes.items()}
    for key, run_id in runs.items():
        run = store.get_run(run_id)
        assert (run.provenance, run.benchmark, run.title) == (PRECOMPUTED, gentle.digest, find_title(key)), key
    assert len([run for run in store.list_runs() if run.kind == "merge"]) == len(runs)
    runs["pretrained"] = find_references(store, gentle, compute=False)["pretrained"].id
    for kind, key in plan.measurements:
        found = measurement_store.find_measurement_result(kind, store, gentle, runs[key] if key else "")
        assert found is not None and found.provenance == PRECOMPUTED, (kind, key)
    assert set(sweep_storage.list_sweeps(store)) == {wanted.id for wanted in plan.sweeps}
    for wanted in plan.sweeps:
        planned, sample = sweep_session.plan_sweep(wanted, gentle), wanted.sample.normalize_on(gentle)
        assert len(KnownPoints(planned, store, gentle, sample).read_points()) == len({one.name for one in planned})


def find_title(key: str) -> str:
    return next(one.title for one in library.RUNS if one.key == key)


def test_the_library_has_each_run_that_a_claim_about_accuracies_compares() -> None:
    compared = {claim.arguments[side] for claim in CLAIMS if claim.fact == "accuracy" for side in ("first", "second")}
    assert compared - library.LEARNING <= set(library.GENTLE_RUNS)


@pytest.mark.full
def test_the_readme_has_both_tables(gentle: Benchmark, store: Store, tmp_path: Path) -> None:
    benchmarks, stores = [Benchmark.load(), gentle], [Store(tmp_path / "none"), store]
    stored = [tables.StoredScores(*pair) for pair in zip(stores, benchmarks, strict=True)]
    readme = (settings.BUNDLED_FOLDER / "README.md").read_text("utf-8")
    for rows in (tables.team_experts(stored, benchmarks), tables.team_merges(stored, stores, benchmarks)):
        assert "\n".join(["", *rows, "", ""]) in readme
