"""An experiment's benchmark: the description of its models and test sets in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from merging.base.errors import HubError
from merging.images.prompt_sets import CLIP, prompts
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

# The whole test set, or a part of it; images and models are read from the fetched files.
MODEL_NAMES_HINT = {"whole": True, "by_reference": True, "models_by_reference": True}


def describe_benchmark(experiment: Experiment, choice: Choice, lock: Lock, into: Path | None = None) -> dict[str, Any]:
    """The description of the benchmark, as ``Description.from_plain`` reads it, with paths into the cache.

    Raises:
        HubError: a repository is not in the cache.
    """
    used = find_models(experiment, choice)
    text = used.text or used.pretrained
    if not uses_own_folder(experiment, choice):
        pretrained = _model_path(used.pretrained, lock, into)
        experts = {one.key: _model_path(used.experts[one.key], lock, into) for one in experiment.tasks}
    else:
        pretrained, experts = find_models_in_folder(experiment, Path(choice.experts))
    inside = {one.key for one in experiment.tasks}
    tasks = {
        one.key: _task(one, lock, into, CLIP if one.key in inside else choice.wording)
        for one in list_test_sets(experiment, choice)
    }
    for key, path in experts.items():
        tasks[key]["expert"] = str(path)
    return {
        "pretrained": str(pretrained),
        "text": str(_model_path(text, lock, into)),
        "tasks": tasks,
        "images": choice.images or 0,
        "exemplars": choice.exemplars or 1,
        "seed": choice.seed,
        "licenses": {
            f"{purpose} ({use.repository})": stated_license(read_shared_parts().repositories[use.repository], lock)
            for use, purpose in list_needed_parts(experiment, choice).items()
        },
        **MODEL_NAMES_HINT,
    }


def _task(one: PublishedSet, lock: Lock, into: Path | None, wording: str) -> dict[str, Any]:
    listed = read_shared_parts().repositories[one.repository]
    words: dict[str, Any] = {"classes": list(one.classes), "templates": list(one.templates)}
    if one.prompts:
        words = {"prompts": one.prompts}
        words |= {"wording": wording} if wording in prompts(one.prompts).wordings else {}
    revision = find_repository(listed, lock).revision
    return {
        "images": str(_snapshot_folder(one.repository, lock, into)),
        "title": one.title,
        # other programs may have put other configurations beside it in the cache
        **({"configuration": one.configuration} if one.configuration else {}),
        "test_split": one.split,
        "image_column": one.image,
        "label_column": one.label,
        "source": f"{one.repository}@{revision}, {one.split}" if revision else f"{one.repository}, {one.split}",
        "license": license_text(listed, lock),  # without its date: scores depend on this text
        **words,
    }


def _model_path(use: ModelFile, lock: Lock, into: Path | None) -> Path:
    return _snapshot_folder(use.repository, lock, into) / find_model_name(use, lock)


def _snapshot_folder(name: str, lock: Lock, into: Path | None) -> Path:
    folder = blob_cache.snapshot(find_repository(read_shared_parts().repositories[name], lock), into)
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
            f"{folder} has no {missing[0].relative_to(folder)}: it is no folder of the papers' experts. Such a folder "
            "has zeroshot.pt, and finetuned.pt in a folder for each task.",
            "missing",
        )
    return pretrained, experts
