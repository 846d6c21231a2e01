"""An experiment's benchmark: the description of its models and test sets as they lie in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from merging.benchmarks.build.description import Description
from merging.errors import HubError
from merging.hub import cache
from merging.published.catalogue import Experiment
from merging.published.choice import Choice, models, sets_of
from merging.published.lock import Lock, license_text, repository_of
from merging.published.parts import ModelFile, PublishedSet, parts

# The whole test set, or an equal part of each class, decoded where it lies. Descriptions that cannot say so yet take
# halves of copied images.
BY_REFERENCE = {"whole": True, "balanced": True, "by_reference": True}


def describe(experiment: Experiment, choice: Choice, lock: Lock, into: Path | None = None) -> dict[str, Any]:
    """The description of the benchmark, as ``Description.of`` takes it, with paths into the cache.

    Raises:
        HubError: a repository is not here.
    """
    used, known = models(experiment, choice), {field.name for field in fields(Description)}
    text = used.text or used.pretrained
    if choice.experts in experiment.models:
        pretrained = _place(used.pretrained, lock, into)
        experts = {one.key: _place(used.experts[one.key], lock, into) for one in experiment.tasks}
    else:
        pretrained, experts = _of_folder(experiment, Path(choice.experts))
    tasks = {one.key: _task(one, lock, into) for one in sets_of(experiment, choice)}
    for key, path in experts.items():
        tasks[key]["expert"] = str(path)
    return {
        "pretrained": str(pretrained),
        "text": str(_place(text, lock, into)),
        "tasks": tasks,
        "images": choice.images or 0,
        "exemplars": choice.exemplars or 1,
        "seed": choice.seed,
        **{name: value for name, value in BY_REFERENCE.items() if name in known},
    }


def _task(one: PublishedSet, lock: Lock, into: Path | None) -> dict[str, Any]:
    listed = parts().repositories[one.repository]
    words: Mapping[str, Any] = (
        {"prompts": one.prompts} if one.prompts else {"classes": list(one.classes), "templates": list(one.templates)}
    )
    revision = repository_of(listed, lock).revision
    return {
        "images": str(_snapshot(one.repository, lock, into)),
        "title": one.title,
        "image_column": one.image,
        "label_column": one.label,
        "source": f"{one.repository}@{revision}, {one.split}" if revision else f"{one.repository}, {one.split}",
        "license": license_text(listed, lock),
        **words,
    }


def _place(use: ModelFile, lock: Lock, into: Path | None) -> Path:
    return _snapshot(use.repository, lock, into) / use.open


def _snapshot(name: str, lock: Lock, into: Path | None) -> Path:
    folder = cache.snapshot(repository_of(parts().repositories[name], lock), into)
    if folder is None:
        raise HubError(f"{name} is not here: fetch it first (`published fetch`).", "missing")
    return folder


def _of_folder(experiment: Experiment, folder: Path) -> tuple[Path, dict[str, Path]]:
    """The pretrained model and the experts in a folder like ``checkpoints/ViT-B-32`` of the published task vectors."""
    pretrained = folder / "zeroshot.pt"
    experts = {one.key: folder / str(one.column) / "finetuned.pt" for one in experiment.tasks}
    missing = [path for path in (pretrained, *experts.values()) if not path.is_file()]
    if missing:
        raise HubError(
            f"{folder} has no {missing[0].relative_to(folder)}: it is no folder of the papers' experts.", "missing"
        )
    return pretrained, experts
