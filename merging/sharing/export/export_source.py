"""What an export reads: a run's models, or one checkpoint, with their parents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from merging.base.errors import CheckpointError, StoreError
from merging.base.files.paths import choose_unique_name
from merging.base.progress import Meter
from merging.base.version import __version__
from merging.engine.modules.modules import Modules
from merging.engine.outputs import MERGED
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import DIGESTS, READING
from merging.models.formats.adapter_checkpoint import AdapterCheckpoint
from merging.models.formats.model_sources import Source, open_checkpoint
from merging.models.model_references import PRETRAINED, hub_id_of, strip_folders
from merging.recipes.recipe import Recipe
from merging.sharing.export.export_provenance import (
    Parent,
    anonymize_recipe,
    check_hub_ids,
    find_parents,
    merge_metadata,
)
from merging.sharing.export.text_side import find_text_sources, find_text_tower_beside, holds_tokens
from merging.study.runs.run import Run
from merging.tasks.context import QUIET, Context

TASKS_FOLDER = "tasks"  # the folder of the models if there is one for each task
LONGEST_FOLDER_NAME = 100  # characters of a task's name that enter a folder's name
# Metadata of an exported file about its merge, which is kept when the file is converted.
CARRIED_METADATA = (
    "merge_method", "merge_recipe", "base_sha256", "source_sha256", "scope", "engine_version", "torch_version",
)  # fmt: skip


@dataclass(frozen=True)
class ExportSource:
    """Models by their place in the folder ("" for a single one), and what is known about them."""

    title: str
    models: Mapping[str, Checkpoint]
    tasks: Mapping[str, str]  # place -> task, empty for a single model
    base: Checkpoint | None
    parents: tuple[Parent, ...]
    metadata: Mapping[str, str]
    states: Mapping[str, tuple[int, ...] | None]  # place -> the file's state before it was read
    lenders: tuple[Checkpoint, ...]  # in which a text tower is looked for, in this order
    no_text: str = ""  # why the pretrained model of a run cannot be one of them
    recipe: Recipe | None = None
    run: Run | None = None
    modules: Modules | None = None  # on top of a run's model


def open_run(
    run: Run, hub_ids: Mapping[str, str], base: Source | None = None, context: Context = QUIET
) -> ExportSource:
    """A stored run's models. ``base`` is the pretrained model, if it is not where the recipe says.

    Raises:
        StoreError: it is no merge, or only its tables are kept.
        CheckpointError: ``base`` is not the model that was merged.
    """
    recipe = run.recipe
    if recipe is None:
        raise StoreError(f"Run {run.id} is the evaluation of one checkpoint, not a merge; convert that file instead.")
    if not run.has_model:
        raise StoreError(f"Run {run.id} keeps no weights; run its recipe again to get them.")
    places = {task: _task_folder(task) for task in run.models} if run.per_task else {MERGED: ""}
    places = _make_distinct(places)
    models = {places[key]: model for key, model in run.open_models().items()}
    first = next(iter(models.values()))
    lent, no_text = ([], "") if holds_tokens(first) else _find_pretrained(run, recipe, base, context)
    return ExportSource(
        title=run.title,
        models=models,
        tasks={places[task]: task for task in run.models} if run.per_task else {},
        base=None,
        parents=find_parents(run, recipe, hub_ids),
        metadata=merge_metadata(run, recipe),
        states={place: model.state() for place, model in models.items()},
        lenders=(first, *lent),
        no_text=no_text,
        recipe=anonymize_recipe(recipe),
        run=run,
        modules=run.open_modules(first),
    )


def _find_pretrained(run: Run, recipe: Recipe, base: Source | None, context: Context) -> tuple[list[Checkpoint], str]:
    """A run's pretrained model and the text tower beside it, if they are still the same; or why they are not taken."""
    name = strip_folders(recipe.pretrained)
    try:
        opened = open_pretrained(recipe, base)
        kept = find_text_tower_beside(opened)
    except (CheckpointError, OSError):
        if base is not None:
            raise
        return [], f"the pretrained model {name} cannot be opened from here"
    if not kept and not holds_tokens(opened):
        return [opened], ""
    digest = DIGESTS.digest(opened, context.meter(opened.nbytes))
    if digest == run.inputs[PRETRAINED]:
        return [opened, *kept], ""
    if base is not None:
        raise CheckpointError(f"{strip_folders(opened.label)} is not the pretrained model of run {run.id}.")
    return [], f"{name} is not the pretrained model that was merged any more"


def open_pretrained(recipe: Recipe, base: Source | None) -> Checkpoint:
    """The pretrained model of a recipe, or ``base`` in its place. Raises CheckpointError if it cannot be opened."""
    return open_checkpoint(recipe.pretrained if base is None else base, PRETRAINED)


def open_single_checkpoint(
    source: Source, base: Source | None, hub_ids: Mapping[str, str], context: Context = QUIET
) -> ExportSource:
    """One checkpoint in any format; an adapter becomes a model with its ``base``.

    Raises:
        CheckpointError: it cannot be read, or it is an adapter and there is no base.
        Cancelled: asked to stop.
    """
    opened, below = open_with_base(source, base)
    named = [(opened.name, opened)] + ([] if below is None else [(PRETRAINED, below)])
    check_hub_ids(hub_ids, [name for name, _ in named])
    state = opened.state()
    meter = context.meter(sum(checkpoint.nbytes for _, checkpoint in named))
    meter.report_part(0, READING)
    origins = [_describe_parent(name, checkpoint, hub_ids, meter) for name, checkpoint in named]
    carried = {key: opened.metadata[key] for key in CARRIED_METADATA if key in opened.metadata}
    if not {"engine_version", "source_sha256"} <= carried.keys():
        sources = json.dumps({parent.label: parent.digest for parent in origins[:1]})
        carried = {"source_sha256": sources, "engine_version": __version__}
        carried |= {"base_sha256": origins[1].digest} if below is not None else {}
    return ExportSource(
        opened.name, {"": opened}, {}, below, tuple(origins), carried, {"": state}, find_text_sources(opened, below)
    )


def open_with_base(source: Source, base: Source | None) -> tuple[Checkpoint, Checkpoint | None]:
    """A checkpoint and its base.

    Raises:
        CheckpointError: one cannot be read, or it is an adapter and there is no base.
    """
    below = None if base is None else open_checkpoint(base, PRETRAINED)
    opened = open_checkpoint(source, like=below)
    if isinstance(opened, AdapterCheckpoint):
        raise CheckpointError(
            f"{opened.name} is {opened.kind}; give the model that it changes as the base (convert --base)."
        )
    return opened, below


def _describe_parent(name: str, checkpoint: Checkpoint, hub_ids: Mapping[str, str], meter: Meter) -> Parent:
    label = strip_folders(checkpoint.label)
    at = checkpoint.label
    on_hub = hub_ids.get(name) or hub_id_of(at) or hub_id_of(str(Path(at).absolute()))
    return Parent(name, label, DIGESTS.digest(checkpoint, meter), on_hub)


def _task_folder(task: str) -> str:
    """A folder for a task's model; the task's name is untrusted text, so it is quoted and cut."""
    name = quote(task, safe=" ")[:LONGEST_FOLDER_NAME].strip(" .")
    return f"{TASKS_FOLDER}/{name or '_'}"


def _make_distinct(places: Mapping[str, str]) -> dict[str, str]:
    """Distinct places, even on a disk that does not distinguish upper and lower case."""
    used: set[str] = set()
    return {key: choose_unique_name(place, used) for key, place in places.items()}
