"""What is chosen, what is pinned, and what the plan says of both before anything is fetched."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from merging.base.errors import HubError, TaskError
from merging.models.hub.repository import RepositoryFacts, RepositoryFile
from merging.sharing.published.catalogue_parts import ModelFile, read_shared_parts
from merging.sharing.published.choice import Choice, list_left_out_rows, list_needed_parts, list_test_sets, make_choice
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.experiment_run import ExperimentFolders
from merging.sharing.published.experiment_texts import plan_data, plan_rows, plan_sentences
from merging.sharing.published.fetch_plan import UNPINNED_TEXT, count_passes, estimate_encoding_seconds, make_plan
from merging.sharing.published.rates import FETCHING_RATE
from merging.sharing.published.repository_lock import (
    Lock,
    find_model_name,
    find_repository,
    license_text,
    list_files,
    match_names,
    read_lock,
    write_lock,
)

EIGHT, SMOKE = read_experiment("clip-b32-8"), read_experiment("smoke")
COMMIT, OTHER = "a" * 40, "b" * 40
EUROSAT = read_shared_parts().repositories["tanganke/eurosat"]
DRIVE = read_shared_parts().repositories["SphereLab/vision_models_in_FDA"]


def facts(*files: RepositoryFile, revision: str = COMMIT, license: str | None = None) -> RepositoryFacts:
    return RepositoryFacts(revision, license, False, files)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("merging.models.hub.blob_cache.cache_folder", lambda: tmp_path / "hub")


# What is chosen


def test_by_default_a_thousand_images_and_no_row_that_needs_exemplars() -> None:
    choice = make_choice(EIGHT)
    assert (choice.images, choice.exemplars, choice.experts, choice.outside) == (1000, 0, "hub", False)
    assert list_left_out_rows(EIGHT, choice) == ("lot", "regmean", "fisher")
    assert make_choice(EIGHT, exemplars=16).rows == tuple(row.key for row in EIGHT.rows)
    assert make_choice(EIGHT, rows=["regmean", "ties"]).exemplars == 64
    assert (
        make_choice(EIGHT, images="all").images is None
        and make_choice(EIGHT, images="all").images_text == "on all images"
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"images": "some"}, "or all; got 'some'"),
        ({"images": "0"}, "a number from 1"),
        ({"rows": ["tise"]}, "has no row 'tise'. Did you mean 'ties'?"),
        ({"experts": "nowhere"}, "there is no folder 'nowhere'"),
        ({"exemplars": -1}, "The number of exemplars is"),
        ({"seed": -1}, "A seed is"),
    ],
)
def test_what_cannot_be_chosen_is_named(options, problem: str) -> None:
    with pytest.raises(TaskError) as error:
        make_choice(EIGHT, **options)
    assert problem in str(error.value)


def test_experts_and_imagenet_must_be_in_the_experiment() -> None:
    with pytest.raises(TaskError, match="has no experts 'published'; it has hub"):
        make_choice(SMOKE, experts="published")
    with pytest.raises(TaskError, match="has no ImageNet"):
        make_choice(SMOKE, imagenet=True)
    assert make_choice(EIGHT, experts="published").experts == "published"


def test_imagenet_is_scored_only_if_it_is_asked_for() -> None:
    keys = [[one.key for one in list_test_sets(EIGHT, make_choice(EIGHT, **options))] for options in
            ({}, {"outside": True}, {"imagenet": True})]  # fmt: skip
    assert [len(each) for each in keys] == [8, 20, 21] and "imagenet" not in keys[1] and keys[2][-1] == "imagenet"


def test_train_splits_are_needed_only_for_exemplars_and_a_folder_brings_its_own_models(tmp_path) -> None:
    plain, drawn = (
        list_needed_parts(EIGHT, make_choice(EIGHT)),
        list_needed_parts(EIGHT, make_choice(EIGHT, exemplars=4)),
    )
    assert {use.part for use in plain} == {"model", "test"} and len(drawn) == len(plain) + 8
    folder = list_needed_parts(EIGHT, make_choice(EIGHT, experts=str(tmp_path)))
    assert [purpose for purpose in folder.values() if "test set" not in purpose] == ["text tower"]
    published = list_needed_parts(EIGHT, make_choice(EIGHT, experts="published"))
    assert published[ModelFile(DRIVE.name, "sun397")] == "expert for SUN397"


def test_a_choice_is_read_as_it_was_written() -> None:
    choice = make_choice(EIGHT, images="all", imagenet=True, exemplars=8, seed=3)
    assert Choice.from_plain(choice.to_plain(), "choice.json") == choice
    with pytest.raises(TaskError, match=r"choice.json: field seed: a whole number, at least 0, is needed; got '3'"):
        Choice.from_plain(choice.to_plain() | {"seed": "3"}, "choice.json")


# What is pinned


TEST_FILE = RepositoryFile("data/test-00000-of-00001.parquet", 9_000_000, "c" * 64)


@pytest.mark.parametrize(
    ("weights", "taken"),
    [
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
        (["model.safetensors", "pytorch_model.bin"], ["pytorch_model.bin"]),  # what the catalogue says
        (["model.safetensors", "tf_model.h5"], ["model.safetensors"]),
        (["adapter_config.json", "adapter_model.bin", "model.safetensors"], ["model.safetensors"]),  # not the adapter
        (
            ["model-00001-of-00001.safetensors", "model.safetensors.index.json"],
            ["model.safetensors.index.json", "model-00001-of-00001.safetensors"],
        ),
    ],
    ids=lambda names: names[0],
)
def test_weights_are_taken_in_the_format_that_is_there(weights: list[str], taken: list[str]) -> None:
    use = EIGHT.models["hub"].pretrained
    listed = read_shared_parts().repositories[use.repository]
    lock = Lock().with_facts(listed, facts(*map(RepositoryFile, ["config.json", "README.md", *weights])))
    assert {file.name for file in list_files(listed, use.part, lock)} == {"config.json", *taken}
    assert find_model_name(use, lock) == taken[0]


def test_an_adapter_and_a_whole_model_do_not_stand_for_each_other() -> None:
    whole = ["config.json", "model.safetensors"]
    assert match_names("adapter_model.safetensors", whole) == []
    assert match_names("adapter_model.safetensors", [*whole, "adapter_model.bin"]) == ["adapter_model.bin"]
    assert match_names("pytorch_model.bin", ["adapter_config.json", "adapter_model.safetensors"]) == []


def test_the_first_facts_pin_a_repository_and_later_ones_must_agree(tmp_path) -> None:
    lock = Lock().with_facts(EUROSAT, facts(TEST_FILE, RepositoryFile("README.md", 10)), today=date(2026, 12, 1))
    write_lock(tmp_path, lock)
    assert read_lock(tmp_path) == lock and read_lock(tmp_path / "none") == Lock()
    assert find_repository(EUROSAT, lock).revision == COMMIT and find_repository(EUROSAT, Lock()).revision is None
    assert list_files(EUROSAT, "test", lock) == (TEST_FILE,)
    assert license_text(EUROSAT, lock) == "none stated" and lock.repositories[EUROSAT.name].read == "2026-12-01"
    with pytest.raises(HubError, match=f"is pinned at {COMMIT}, but the Hub has {OTHER}"):
        lock.with_facts(EUROSAT, facts(TEST_FILE, revision=OTHER))
    newer = lock.with_facts(EUROSAT, facts(TEST_FILE, revision=OTHER, license="mit"), latest=True)
    assert newer.latest == (EUROSAT.name,) and license_text(EUROSAT, newer) == "mit"
    assert newer.with_facts(EUROSAT, facts(TEST_FILE, revision=OTHER), latest=True).latest == (EUROSAT.name,)


def test_a_carried_lock_comes_before_the_one_here_for_its_repositories(tmp_path) -> None:
    place = ExperimentFolders(tmp_path / "store", "smoke", tmp_path / "carried")
    here = (
        Lock()
        .with_facts(EUROSAT, facts(TEST_FILE))
        .with_facts(DRIVE, facts(TEST_FILE, revision=DRIVE.revision or COMMIT))
    )
    here = replace(here, latest=(DRIVE.name,))
    carried = Lock().with_facts(EUROSAT, facts(TEST_FILE, revision=OTHER))
    write_lock(place.folder, here)
    assert place.read_lock() == here
    write_lock(tmp_path / "carried/published/smoke", carried)
    both = place.read_lock()
    assert both.repositories == {DRIVE.name: here.repositories[DRIVE.name], **carried.repositories}
    assert both.latest == here.latest == (DRIVE.name,)
    place.store_lock(both)
    assert read_lock(place.folder) == here and read_lock(tmp_path / "carried/published/smoke") == both
    marked = replace(carried, latest=(EUROSAT.name,))
    assert here.replace_with(marked).latest == (DRIVE.name, EUROSAT.name)
    assert marked.replace_with(carried).latest == ()  # these files are the catalogue's again


def test_the_catalogue_s_commit_and_digests_are_held_to() -> None:
    known = replace(EUROSAT, revision=OTHER)
    assert find_repository(known, Lock()).revision == OTHER
    with pytest.raises(HubError, match="--latest uses it"):
        Lock().with_facts(known, facts(TEST_FILE))
    name = "ViT-B-32/SUN397/finetuned.pt"
    right = RepositoryFile(name, 453_892_355, "8390dd4b42d4" + "0" * 52)
    assert Lock().with_facts(DRIVE, facts(right)).repositories
    for wrong in (replace(right, sha256="f" * 64), replace(right, size=1), replace(right, sha256=None)):
        with pytest.raises(HubError, match=r"finetuned\.pt of SphereLab.* differs from the catalogue's file"):
            Lock().with_facts(DRIVE, facts(wrong))
        assert Lock().with_facts(DRIVE, facts(wrong), latest=True).repositories


def test_a_file_that_is_gone_is_named_with_what_there_is() -> None:
    lock = Lock().with_facts(EUROSAT, facts(RepositoryFile("data/train.parquet", 1)))
    with pytest.raises(HubError, match=r"tanganke/eurosat has no file data/test-00000-of-00001.parquet at aaaa.*train"):
        list_files(EUROSAT, "test", lock)


def test_a_lock_that_cannot_be_read_is_not_taken_for_none(tmp_path) -> None:
    (tmp_path / "lock.json").write_text("{}", "utf-8")
    with pytest.raises(TaskError, match=r"lock.json: field version is missing"):
        read_lock(tmp_path)
    (tmp_path / "lock.json").write_text('{"version": 9, "repositories": {}, "latest": []}', "utf-8")
    with pytest.raises(TaskError, match="by another version"):
        read_lock(tmp_path)


# The plan


def test_the_plan_of_an_empty_cache_has_all_to_fetch_roughly() -> None:
    plan = make_plan(SMOKE, make_choice(SMOKE), Lock(), cores=2)
    assert plan.bytes_to_fetch == 605_000_000 + 2 * 349_800_000 + 2_600_000 + 9_100_000
    assert (plan.local_bytes, plan.has_exact_sizes, plan.is_complete, plan.host) == (0, False, False, "huggingface.co")
    assert plan.fetch_seconds == plan.bytes_to_fetch / 10e6
    sentences = " ".join(plan_sentences(plan))
    assert "about 1.32 GB" in sentences and "at 10 MB/s" in sentences and UNPINNED_TEXT in sentences
    head, *rows = plan_rows(plan)
    assert [row[head.index("license")] for row in rows] == ["none stated"] * 3 + ["not read yet", "none stated"]
    assert plan_data(plan)["repositories"][0]["pinned"] == UNPINNED_TEXT


def test_what_is_pinned_is_exact_and_what_is_here_is_not_fetched(tmp_path) -> None:
    lock = Lock().with_facts(EUROSAT, facts(TEST_FILE, license="mit"))
    (part,) = [each for each in make_plan(SMOKE, make_choice(SMOKE), lock).parts if each.repository == EUROSAT.name]
    assert (part.nbytes, part.is_exact, part.license, part.revision) == (9_000_000, True, "mit", COMMIT)
    folder = tmp_path / "hub" / "datasets--tanganke--eurosat" / "snapshots" / COMMIT / "data"
    folder.mkdir(parents=True)
    with (folder / "test-00000-of-00001.parquet").open("wb") as file:
        file.truncate(9_000_000)
    plan = make_plan(SMOKE, make_choice(SMOKE), lock, rates={FETCHING_RATE: 1e6})
    (part,) = [each for each in plan.parts if each.repository == EUROSAT.name]
    assert part.is_complete and part.missing_bytes == 0 and plan.local_bytes == 9_000_000
    assert plan.rate_measured and "the rate of the last download" in " ".join(plan_sentences(plan))


def test_too_little_room_and_unknown_sizes_are_said(monkeypatch) -> None:
    monkeypatch.setattr("merging.sharing.published.fetch_plan.free_bytes", lambda place: 1_000_000)
    words = " ".join(plan_sentences(make_plan(EIGHT, make_choice(EIGHT, exemplars=4), Lock())))
    assert "The free space is not enough. Set HF_HOME" in words
    assert "Not known in advance: the size of exemplars of SUN397" in words
    assert "Left out, as they need exemplars" in " ".join(plan_sentences(make_plan(EIGHT, make_choice(EIGHT), Lock())))


def test_passes_count_the_pretrained_model_each_expert_and_every_row() -> None:
    all_images, few = make_choice(EIGHT, images="all"), make_choice(EIGHT, images="100", outside=True)
    assert count_passes(EIGHT, all_images, 12) == (87_433, 87_433 * 14)
    assert count_passes(EIGHT, few, 3) == (2000, 800 * 5 + 1200 * 4)
    assert (
        estimate_encoding_seconds("ViT-B/32", 900, "cpu", 2) == 50
        and estimate_encoding_seconds("ViT-L/14", 900, "cpu", 2) == 900
    )
    assert estimate_encoding_seconds("ViT-L/14", 400, "cuda", 2) == 1


@pytest.mark.parametrize("change", [{"revision": "/home/u/.ssh"}, {"revision": "main"}, {"git_id": "../../victim.txt"}])
def test_a_carried_lock_that_leads_out_of_the_cache_is_refused(tmp_path, change: dict[str, str]) -> None:
    write_lock(tmp_path, Lock().with_facts(EUROSAT, facts(RepositoryFile("README.md", 10, None, "d" * 40))))
    path = tmp_path / "lock.json"
    path.write_text(path.read_text().replace(COMMIT if "revision" in change else "d" * 40, *change.values()))
    with pytest.raises(TaskError, match=f"lock.json, {EUROSAT.name}"):
        read_lock(tmp_path)


def test_other_files_at_a_first_fetch_are_marked() -> None:
    right = RepositoryFile("ViT-B-32/SUN397/finetuned.pt", 453_892_355, "8390dd4b42d4" + "0" * 52)
    other = facts(replace(right, sha256="0" * 64), revision=DRIVE.revision or COMMIT)
    lock = Lock().with_facts(DRIVE, other, latest=True)
    assert lock.latest == lock.with_facts(DRIVE, other, latest=True).latest == (DRIVE.name,)
    assert Lock().with_facts(DRIVE, facts(right, revision=other.revision), latest=True).latest == ()
