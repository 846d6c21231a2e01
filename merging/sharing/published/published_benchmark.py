"""An experiment's benchmark: the description of its models and test sets in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from merging.base.errors import HubError
from merging.images.prompt_sets import CLIP, read_prompts
from merging.models.hub import blob_cache
from merging.sharing.published.catalogue_parts import ModelFile, PublishedSet, read_shared_parts
from merging.sharing.published.choice import Choice, find_models, list_needed_parts, list_test_sets, uses_own_folder
from merging.sharing.published.experiment_catalogue import Experiment
from merging.sharing.published.repository_lock import (
    Lock,
    find_model_name,
    find_repository,
    license_text,
    stated_license,
)

# Of a benchmark's description: test sets are not divided into halves, images and models stay in the fetched files.
READING_OPTIONS = {"whole": True, "by_reference": True, "models_by_reference": True}


def describe_benchmark(
    experiment: Experiment, choice: Choice, lock: Lock, separate_cache: Path | None = None
) -> dict[str, Any]:
    """The description of the benchmark, as ``Description.from_plain`` reads it, with paths into the cache.

    Raises:
        HubError: a repository is not in the cache.
    """
    models = find_models(experiment, choice)
    text = models.text or models.pretrained
    if not uses_own_folder(experiment, choice):
        pretrained = _find_model_path(models.pretrained, lock, separate_cache)
        experts = {one.key: _find_model_path(models.experts[one.key], lock, separate_cache) for one in experiment.tasks}
    else:
        pretrained, experts = find_models_in_folder(experiment, Path(choice.experts))
    in_domain = {one.key for one in experiment.tasks}
    tasks = {
        one.key: _describe_task(one, lock, separate_cache, CLIP if one.key in in_domain else choice.wording)
        for one in list_test_sets(experiment, choice)
    }
    for key, path in experts.items():
        tasks[key]["expert"] = str(path)
    return {
        "pretrained": str(pretrained),
        "text": str(_find_model_path(text, lock, separate_cache)),
        "tasks": tasks,
        "images": choice.images or 0,  # 0: all
        "exemplars": choice.exemplars or 1,  # 0 would mean all
        "seed": choice.seed,
        "licenses": {
            f"{purpose} ({use.repository})": stated_license(read_shared_parts().repositories[use.repository], lock)
            for use, purpose in list_needed_parts(experiment, choice).items()
        },
        **READING_OPTIONS,
    }


def _describe_task(test_set: PublishedSet, lock: Lock, separate_cache: Path | None, wording: str) -> dict[str, Any]:
    listed = read_shared_parts().repositories[test_set.repository]
    prompt_fields: dict[str, Any] = {"classes": list(test_set.classes), "templates": list(test_set.templates)}
    if test_set.prompts:
        prompt_fields = {"prompts": test_set.prompts}
        prompt_fields |= {"wording": wording} if wording in read_prompts(test_set.prompts).wordings else {}
    revision = find_repository(listed, lock).revision
    return {
        "images": str(_find_snapshot_folder(test_set.repository, lock, separate_cache)),
        "title": test_set.title,
        # the cache may also have other configurations, from other programs
        **({"configuration": test_set.configuration} if test_set.configuration else {}),
        "test_split": test_set.split,
        "image_column": test_set.image,
        "label_column": test_set.label,
        "source": f"{test_set.repository}@{revision}, {test_set.split}"
        if revision
        else f"{test_set.repository}, {test_set.split}",
        "license": license_text(
            listed, lock
        ),  # without its date, because the digest of the scores depends on this text
        **prompt_fields,
    }


def _find_model_path(use: ModelFile, lock: Lock, separate_cache: Path | None) -> Path:
    return _find_snapshot_folder(use.repository, lock, separate_cache) / find_model_name(use, lock)


def _find_snapshot_folder(name: str, lock: Lock, separate_cache: Path | None) -> Path:
    folder = blob_cache.find_snapshot(find_repository(read_shared_parts().repositories[name], lock), separate_cache)
    if folder is None:
        raise HubError(f"{name} is not in the cache: fetch it first (`published fetch`).", "missing")
    return folder


def find_models_in_folder(experiment: Experiment, folder: Path) -> tuple[Path, dict[str, Path]]:
    """The pretrained model and the experts in a folder like ``checkpoints/ViT-B-32`` of the published task vectors.

    Raises:
        HubError: one of them is missing.
    """
    pretrained = folder / "zeroshot.pt"
    experts = {one.key: folder / (one.column or one.key) / "finetuned.pt" for one in experiment.tasks}
    missing = [path for path in (pretrained, *experts.values()) if not path.is_file()]
    if missing:
        raise HubError(
            f"{folder} has no {missing[0].relative_to(folder)}: it is not a folder of the papers' experts. Such a "
            "folder has zeroshot.pt, and finetuned.pt in a folder for each task.",
            "missing",
        )
    return pretrained, experts
