"""The origin of a model without the folders of its files: names of files, names on the Hub, digests."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merging.base.errors import MergingError
from merging.base.version import __version__
from merging.models.formats.referenced_model import resolve_model_path
from merging.models.model_references import PRETRAINED, checkpoint_labels, expert_key, hub_id_of, strip_folders
from merging.recipes.recipe import VERSION, Recipe
from merging.study.runs.run import Run

HUB_ID_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class Parent:
    """A checkpoint from which the model was made.

    ``label`` is the name of its file or repository, ``digest`` the SHA-256 of its tensors.
    """

    name: str
    label: str
    digest: str
    hub_id: str = ""

    @property
    def model_id(self) -> str:
        """Its name in a card's metadata, in the form of a repository's name."""
        return self.hub_id or re.sub(r"[^\w.-]+", "-", self.label, flags=re.ASCII).strip("-.") or self.name


def check_hub_ids(hub_ids: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise MergingError unless every name is one of the parents' and every value could be a repository."""
    for name, value in hub_ids.items():
        if name not in names:
            raise MergingError(f"There is no {name!r} among the merged models; there are {', '.join(names)}.")
        if not HUB_ID_PATTERN.fullmatch(value):
            raise MergingError(f"{value!r} is not the name of a repository; write it as 'organization/model'.")


def anonymize_recipe(recipe: Recipe) -> Recipe:
    """The recipe with the labels of its checkpoints instead of their references."""
    pretrained, experts = checkpoint_labels(recipe.pretrained, dict(recipe.experts))
    data_files = recipe.data_files.map_paths(strip_folders)
    return dataclasses.replace(recipe, pretrained=pretrained, experts=tuple(experts.items()), data_files=data_files)


def find_parents(run: Run, recipe: Recipe, hub_ids: Mapping[str, str]) -> tuple[Parent, ...]:
    """The pretrained model and the experts of a run.

    Raises:
        MergingError: ``hub_ids`` names another model, or has an invalid name of a repository.
    """
    check_hub_ids(hub_ids, [PRETRAINED, *(name for name, _ in recipe.experts)])
    anonymous_recipe = anonymize_recipe(recipe)
    paths = [recipe.pretrained, *(path for _, path in recipe.experts)]
    labels = [(PRETRAINED, anonymous_recipe.pretrained, PRETRAINED)]
    labels += [(name, label, expert_key(name)) for name, label in anonymous_recipe.experts]
    return tuple(
        Parent(name, label, run.inputs[key], hub_ids.get(name) or hub_id_of(resolve_model_path(path)))
        for (name, label, key), path in zip(labels, paths, strict=True)
    )


def collect_merge_metadata(run: Run, recipe: Recipe) -> dict[str, str]:
    """The metadata of a model file about its merge, without the machine, the folders or the time."""
    data = recipe.to_plain()
    settings = ("exemplars", "count_dead_params", "activation", "architecture", "edits", "merge")
    chain = {key: data[key] for key in settings if key in data}
    sources = {name: run.inputs[expert_key(name)] for name, _ in recipe.experts}
    inputs = {PRETRAINED: run.inputs[PRETRAINED], "experts": sources}
    return {
        "merge_method": recipe.merge.key,
        "merge_recipe": json.dumps({"version": VERSION, **chain, **inputs}),
        "base_sha256": run.inputs[PRETRAINED],
        "source_sha256": json.dumps(sources),
        # "paper": quantiles counted the unused text tensors of published encoders, too
        "scope": "paper" if recipe.count_dead_params else "visual",
        "engine_version": run.versions.get("mergescope", __version__),
        "torch_version": run.versions.get("torch", ""),
    }
