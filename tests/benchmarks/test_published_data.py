"""Benchmarks of published data sets: what was chosen of each and what was assumed stands in the manifest."""

from __future__ import annotations

import json

import published_layouts as layouts
import pytest
import tiny_data

from merging.base.errors import TaskError
from merging.cli.main import main
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.images.benchmarks.build.benchmark_plan import plan_benchmark
from merging.sharing.catalog import data_set_catalog


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with a model and some published data sets; do not change it."""
    root = tmp_path_factory.mktemp("published")
    tiny_data.whole_model(root / "clip.safetensors")
    for write in (layouts.svhn, layouts.fer2013, layouts.oxford_pets, layouts.food101, layouts.pcam, layouts.emnist):
        write(root)
    layouts.hub_cache(layouts.eurosat(root / "loose"), "tanganke/eurosat", root / "hub")
    layouts.datasets_cache(root / "cache", layouts.Layout("ylecun/mnist", "mnist"), "mnist")
    layouts.fer2013_converted(root)
    return root


def described(base, tasks):
    return Description.from_plain({"pretrained": "clip.safetensors", "images": 4, "exemplars": 3, "tasks": tasks}, base)


def test_what_was_chosen_and_assumed_is_in_the_manifest(base, tmp_path):
    tasks = {
        "svhn": {"images": "ufldl-stanford/svhn", "configuration": "cropped_digits", "prompts": "svhn"},
        "pets": {"images": "timm/oxford-iiit-pet", "prompts": "oxford_pets", "wording": "hub"},
        "pcam": {"images": "1aurent/PatchCamelyon", "prompts": "pcam", "test_split": "valid"},
        "fer": {"images": "clip-benchmark/wds_fer2013", "prompts": "fer2013"},
        "eurosat": {"images": "hub/datasets--tanganke--eurosat", "prompts": "eurosat"},
    }
    made = write_benchmark(described(base, tasks), tmp_path / "bench", tokenize=tiny_data.letters)
    facts = json.loads((tmp_path / "bench" / "manifest.json").read_text())["tasks"]
    assert {key: (one["prompts"], one["wording"]) for key, one in facts.items() if one["wording"] == "hub"} == {
        "pets": ("oxford_pets", "hub")
    }
    assert (
        made.find_task("pets").class_names[1] == "american_bulldog"
        and made.find_task("fer").class_names[4] == "neutral"
    )
    assert "test images from part 'validation'; part 'test' is not used" in facts["pcam"]["split"]
    assert facts["pcam"]["cautions"] == [
        "Labels of column 'label' are false and true, taken as 0 and 1.",
        "Labels are numbers without names; it was assumed that they count in this order: no tumor, tumor.",
    ]
    assert facts["pets"]["cautions"] == [
        "Column 'label' gives the labels; label_column can name label_cat_dog instead."
    ]
    assert facts["eurosat"]["images"] == f"tanganke/eurosat@{layouts.COMMIT[:12]}" and not facts["eurosat"]["cautions"]
    assert facts["fer"]["kind"] == "WebDataset" and made.count_images("fer", "reporting") == 4


def test_plain_names_are_the_default_and_another_wording_changes_names_alone(base):
    tasks = {"pets": {"images": "timm/oxford-iiit-pet", "prompts": "oxford_pets"}}
    (clip,) = plan_benchmark(described(base, tasks), tower=False).tasks
    (hub,) = plan_benchmark(described(base, {"pets": tasks["pets"] | {"wording": "hub"}}), tower=False).tasks
    assert clip.classes.names[1] == "american bulldog" and hub.classes.names[1] == "american_bulldog"
    assert clip.templates == hub.templates and (clip.split.test[1] == hub.split.test[1]).all()


BAD_TASKS = {
    "wording": ({"images": "x", "prompts": "mnist", "wording": "hob"}, "is clip or hub; got 'hob'"),
    "wording without prompts": ({"images": "x", "wording": "hub"}, "wording of task 't' needs `prompts`"),
    "wording unknown": (
        {"images": "ernestchu/emnist-digits", "prompts": "emnist", "wording": "hub"}, "no wording 'hub' of EMNIST",
    ),
    "names missing": (
        {"images": "clip-benchmark/wds_fer2013_parquet", "prompts": "fer2013"}, "files of FER2013 differ in what they",
    ),
    "other classes": (
        {"images": "ethz/food101", "prompts": "mnist"}, "first differ at label 0: .* has 'apple_pie', MNIST '0'",
    ),
    "configuration": (
        {"images": "ufldl-stanford/svhn", "configuration": "all"}, "svhn has no configuration 'all'",
    ),
    "split": ({"images": "ethz/food101", "test_split": "test"}, "no split 'test'; it has train, validation"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_TASKS)
def test_what_cannot_be_is_refused_in_words(kind, base):
    task, problem = BAD_TASKS[kind]
    with pytest.raises(TaskError, match=problem):
        plan_benchmark(described(base, {"t": task}), tower=False)


def test_the_command_describes_published_data_sets(base, capsys):
    assert main(["benchmark", "look", str(base / "hub" / "datasets--tanganke--eurosat")]) == 0
    assert "Hugging Face data set: test 40, train 40 images, 10 classes" in capsys.readouterr().out
    svhn = str(base / "ufldl-stanford" / "svhn")
    assert main(["benchmark", "look", svhn, "--configuration", "cropped_digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []
    assert main(["benchmark", "look", svhn, "--configuration", "full_numbers"]) == 1
    assert "svhn has no configuration 'full_numbers'. It has cropped_digits." in capsys.readouterr().err


def test_published_data_sets_are_listed(base):
    found = {
        one.listed_path.partition("/")[2]: one.name for one in data_set_catalog.list_in_models_folder("data", base)
    }
    assert found == {
        "cache/ylecun___mnist": "mnist",
        "clip-benchmark/wds_fer2013": "wds_fer2013",
        "clip-benchmark/wds_fer2013_parquet": "wds_fer2013_parquet",
        "hub/datasets--tanganke--eurosat": "eurosat",
        "loose/tanganke/eurosat": "eurosat",
        "ufldl-stanford/svhn": "svhn",
        "timm/oxford-iiit-pet": "oxford-iiit-pet", "ethz/food101": "food101", "1aurent/PatchCamelyon": "PatchCamelyon",
        "ernestchu/emnist-digits": "emnist-digits",
    }  # fmt: skip
    (tar,) = data_set_catalog.list_at_path(str(base / "clip-benchmark" / "wds_fer2013" / "test" / "0.tar"))
    assert tar.name == "0"
