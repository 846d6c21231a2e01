"""Runs with other choices than the usual ones: a folder of experts, test sets out of domain, other class names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import published_models
import pytest
from loopback_hub import LoopbackHub
from published_calls import accuracies, keys, row, run

from merging.images.prompt_sets import HUB, read_prompts
from merging.recipes.papers.published_figures import ILHARCO
from merging.sharing.published.accuracy_verdicts import NOT_COMPARABLE
from merging.sharing.published.experiment_catalogue import read_experiment

pytestmark = pytest.mark.full
EIGHT = read_experiment("clip-b32-8")
EXPERTS = "tanganke/clip-vit-base-patch32"


def test_the_experts_of_a_folder_have_accuracies_of_their_own(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published_models.folder_of_experts(tmp_path / "ViT-B-32", ["MNIST", "EuroSAT"], 0.1)
    monkeypatch.chdir(tmp_path)
    words = ("--images", "all", "--rows", "averaging")
    hubs = run(capsys, *words)
    own = run(capsys, *words, "--experts", "ViT-B-32")
    assert keys(own) == keys(hubs) == ["pretrained", "individual", "averaging"]
    assert accuracies(own, "individual") == [20.0, 5.0] != accuracies(hubs, "individual")  # of MNIST and EuroSAT
    assert accuracies(own, "pretrained") == accuracies(hubs, "pretrained")
    assert row(own, "averaging")["run"] != row(hubs, "averaging")["run"]
    assert own["models"] == f"experts in the folder ViT-B-32 (compared with those of {ILHARCO})"
    assert hubs["models"] == "tanganke's fine-tuned encoders (Hugging Face)"
    assert {each["in_domain"]["verdict"] for each in own["rows"]} == {NOT_COMPARABLE} and not own["gate"]["passed"]
    monkeypatch.chdir("/")
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "another"))
    hub.repositories = {key: each for key, each in hub.repositories.items() if EXPERTS not in key[1]}
    assert run(capsys, *words, "--experts", str(tmp_path / "ViT-B-32")) == own  # none of the Hub's experts is asked for


@pytest.mark.parametrize("hub", ["clip-b32-8"], indirect=True)
def test_test_sets_out_of_domain_with_class_names_of_either_kind(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    words = ("--images", "8", "--rows", "averaging", "--tasks", "mnist", "--ood")
    table = run(capsys, *words, key="clip-b32-8")
    outside = [one.key for one in EIGHT.outside if one.key != "imagenet"]
    for key in ("pretrained", "averaging"):
        lines = row(table, key)["tasks"]
        assert [line["task"] for line in lines if not line["in_domain"]] == outside
        assert {line["n"] for line in lines} == {8} and row(table, key)["out_of_domain"]["n"] == 8 * len(outside)
        assert row(table, key)["h_score"] is not None
        assert {line["task"]: line["chance"] for line in lines if line["chance"]} == {
            "kmnist": 10.0, "pcam": 50.0, "rendered_sst2": 50.0,
        }  # fmt: skip
    assert row(table, "individual")["out_of_domain"] is None
    names = class_names(tmp_path)
    worded = run(capsys, *words, "--wording", "hub", key="clip-b32-8")
    others = class_names(tmp_path)
    known = {one.key: read_prompts(str(one.prompts)) for one in EIGHT.outside}
    hubs = {
        key: list((each.with_wording(HUB) if HUB in each.wordings else each).class_names) for key, each in known.items()
    }
    for key in outside:  # in the order of the data set's labels
        assert sorted(others[key]) == sorted(hubs[key]) and sorted(names[key]) == sorted(known[key].class_names)
    assert others["fashion_mnist"] != names["fashion_mnist"] and others["mnist"] == names["mnist"]
    assert accuracies(worded, "pretrained")[0] == accuracies(table, "pretrained")[0]
    assert row(worded, "pretrained")["out_of_domain"]["reason"].startswith("other wording")


def class_names(root: Path) -> dict[str, list[str]]:
    """Those of the benchmark's tasks."""
    entries = json.loads((root / "store/benchmarks/published-clip-b32-8/tasks.json").read_text("utf-8"))
    return {entry["key"]: entry["class_names"] for entry in entries["tasks"]}
