"""Where checkpoints lie on a machine, and whose it is: neither the report nor an exported model tells it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import viz_tables

from app.reading import report_sources
from merging.base.files.plain_yaml import read_plain_yaml
from merging.models import model_references
from merging.recipes.recipe import Recipe
from merging.sharing.export import export_provenance
from merging.sharing.export.model_export import export
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Axis, Sweep
from merging.tasks.context import Context
from viz.report import render
from viz.report.private_names import PrivateNames, find_leak
from viz.report.report_contents import Report, ReportView, Source

HUB_CACHE = "huggingface/hub/models--openai--clip-vit/snapshots/3d74acf"
ON_HUB = "hf-hub:openai/clip-vit@3d74acf"
LABELS = {  # reference: what others may read of it
    # POSIX
    "/home/ann/clip/cars.pt": "cars.pt",
    "/mnt/ann-laptop/cars/": "cars",
    "../ann/cars.pt": "cars.pt",
    "~/cars.pt": "cars.pt",
    "~ann/cars.pt": "cars.pt",
    "/home/cars.pt": "cars.pt",
    "experts/home/cars": "cars",
    # Windows
    r"C:\Users\ann\cars.pt": "cars.pt",
    "c:/users/ann/cars.pt": "cars.pt",
    "C:cars.pt": "cars.pt",
    "C:\\": "model",
    # UNC
    r"\\ann-laptop\share\cars.pt": "cars.pt",
    "//ann-laptop/share/cars.pt": "cars.pt",
    r"\\ann-laptop\ann": "model",
    r"\\ann-laptop": "model",
    # home folders, whose names are users'
    "/home/ann": "model",
    "/Users/ann/": "model",
    "/export/home/ann": "model",
    "/home/ann.smith": "model",
    r"C:\Users\ann": "model",
    r"\\?\C:\Users\ann": "model",
    r"\\server\home\ann": "model",
    "~ann": "model",
    "~": "model",
    # file URLs
    "file:///home/ann/cars.pt": "cars.pt",
    "FILE:///C:/Users/ann/cars.pt": "cars.pt",
    "file:///srv/ann%2Fcars.pt": "cars.pt",
    "file://ann-laptop/share/cars.pt": "cars.pt",
    "file://ann-laptop/": "model",
    "file:///home/ann": "model",
    # the Hub's cache
    f"/home/ann/.cache/{HUB_CACHE}": ON_HUB,
    f"/home/ann/.cache/{HUB_CACHE}/model.safetensors": ON_HUB,
    "C:\\Users\\ann\\.cache\\" + HUB_CACHE.replace("/", "\\"): ON_HUB,
    f"file:///home/ann/.cache/{HUB_CACHE}/": ON_HUB,
    f"file:///home/ann%2F.cache%2F{HUB_CACHE.replace('/', '%2F')}": ON_HUB,
    # paths behind a prefix
    "bundled:/home/ann/cars": "bundled:cars",
    "bundled:/home/ann": "model",
    "hf-hub:/home/ann/cars.pt": "cars.pt",
    "hf-hub:../ann/cars.pt": "cars.pt",
    r"hf-hub:C:\Users\ann\cars.pt": "cars.pt",
    "hf-hub:me/cars@/home/ann/x": "x",
    "models:ann/cars.pt": "cars.pt",
    "own:ann/models/cars.pt": "cars.pt",
    # names that mean the same everywhere
    "bundled:digits": "bundled:digits",
    "hf-hub:me/cars": "hf-hub:me/cars",
    "hf-hub:me/cars@refs/pr/1": "hf-hub:me/cars@refs/pr/1",
    "ViT-B-32/openai": "ViT-B-32/openai",
}
ANN = PrivateNames(("/home/ann", r"C:\Users\ann"), ("ann", "ann-laptop"))
TELLING = re.compile(rb"\bann\b|laptop|\bhome\b|\busers\b|\bshare\b|file:/|%2f|models--", re.IGNORECASE)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    """A recipe with an expert of every reference."""
    experts = {f"e{number}": reference for number, reference in enumerate(LABELS)}
    return Recipe.build("ties", {}, [], "/home/ann/pretrained.pt", experts, "A title")


def in_report(recipe_yaml: str) -> str:
    """A report on a run with that recipe as HTML, that program apart which draws."""
    from viz.report.document import plotly_js

    run = Source("0123456789ab", "Run", "TIES", (), (), report_sources.portable_recipe(recipe_yaml))
    view = ReportView("saliency_tensor", viz_tables.saliency_tensor(2), sources=(run.id,))
    return render(Report("A report", "", (view,), (run,)), ANN).replace(plotly_js(), "")


@pytest.mark.parametrize(("reference", "label"), LABELS.items())
def test_a_label_tells_nothing_of_the_machine(reference: str, label: str) -> None:
    assert model_references.strip_folders(reference) == label
    assert model_references.strip_folders(label) == label
    assert find_leak(label, ANN) == ("", "")


@pytest.mark.parametrize(("reference", "label"), LABELS.items())
def test_the_report_and_the_card_call_a_checkpoint_the_same(reference: str, label: str) -> None:
    made = Recipe.build("ties", {}, [], reference, {"a": reference})
    for found in (
        Recipe.from_yaml(report_sources.portable_recipe(made.to_yaml())),
        export_provenance.anonymize_recipe(made),
    ):
        assert (found.pretrained, dict(found.experts)) == (label, {"a": label})
    unknown = read_plain_yaml(report_sources.portable_recipe(made.to_yaml().replace("ties", "of_tomorrow")))
    assert (unknown["pretrained"], unknown["experts"]) == (label, {"a": label})


def test_hub_ids_are_names_of_repositories() -> None:
    hub_ids = {reference: model_references.hub_id_of(reference) for reference in LABELS}
    assert set(hub_ids.values()) == {"", "me/cars", "openai/clip-vit"}
    assert not hub_ids["hf-hub:/home/ann/cars.pt"] and not hub_ids["hf-hub:../ann/cars.pt"]


def test_a_report_tells_no_reference(recipe: Recipe) -> None:
    sweep = Sweep(recipes=(recipe,), axes=(Axis("ties.density", (0.1, 0.2)),))
    for written in (recipe.to_yaml(), sweep.to_yaml()):
        document = in_report(written)
        assert "cars.pt" in document and ON_HUB in document and "ViT-B-32/openai" in document
        assert not TELLING.findall(report_sources.portable_recipe(written).encode())


def test_files_that_share_a_name_stay_apart_in_a_report() -> None:
    made = Recipe.build("ties", {}, [], "p.pt", {"a/b": "/home/ann/x/x.pt", "c": "/home/ann/y/x.pt", "d": "/z/d.pt"})
    found = Recipe.from_yaml(report_sources.portable_recipe(made.to_yaml()))
    assert dict(found.experts) == {"a/b": "a%2Fb/x.pt", "c": "c/x.pt", "d": "d.pt"}


@pytest.fixture(scope="module")
def run(tiny_benchmark: Any, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A merge that says of itself that its checkpoints were those of ``recipe``."""
    merged = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, "A title")
    store = Store(tmp_path_factory.mktemp("runs"), libraries=())
    stored = execute(merged, store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    digests = {f"experts/{name}": f"{number:064x}" for number, (name, _) in enumerate(recipe.experts)}
    run = replace(stored, inputs={"pretrained": stored.inputs["pretrained"], **digests})
    vars(run)["recipe"] = recipe  # in place of what it reads from its folder
    return run


@pytest.mark.parametrize("to", ["hf", "open_clip"])
def test_an_exported_model_tells_no_reference(run: Run, to: str, tmp_path: Path) -> None:
    folder = export(run, tmp_path / to, to=to).folder
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert b"cars.pt" in files["recipe.yaml"] and ON_HUB.encode() in files["README.md"]
    assert {name: TELLING.findall(raw) for name, raw in files.items() if TELLING.search(raw)} == {}
