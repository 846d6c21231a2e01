"""The source of an export: a run's models, or one checkpoint, with their parents."""

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
    collect_merge_metadata,
    find_parents,
)
from merging.sharing.export.text_side import find_text_sources, find_text_tower_beside, holds_tokens
from merging.study.runs.run import Run
from merging.tasks.context import QUIET, Context

TASKS_FOLDER = "tasks"  # the folder of the models if there is one for each task
MAX_FOLDER_NAME_CHARACTERS = 100  # characters of a task's name in a folder's name
# Metadata of an exported file about its merge, which a conversion retains.
CARRIED_METADATA = (
    "merge_method", "merge_recipe", "base_sha256", "source_sha256", "scope", "engine_version", "torch_version",
)  # fmt: skip


@dataclass(frozen=True)
class ExportSource:
    """The models to export by their subfolder ("" for a single model), and facts about them."""

    title: str
    models: Mapping[str, Checkpoint]
    tasks: Mapping[str, str]  # subfolder -> task; empty for a single model
    base: Checkpoint | None  # the pretrained model that was named for a single checkpoint; None for a run
    parents: tuple[Parent, ...]
    metadata: Mapping[str, str]
    states: Mapping[str, tuple[int, ...] | None]  # subfolder -> the file's state before it was read
    text_sources: tuple[Checkpoint, ...]  # the checkpoints in which a text tower is searched, in this order
    no_text_reason: str = ""  # why the run's pretrained model is not one of the text sources
    recipe: Recipe | None = None
    run: Run | None = None
    modules: Modules | None = None  # layers that the last step of a run's recipe, an adapt, put on top of the model


def open_run(
    run: Run, hub_ids: Mapping[str, str], base: Source | None = None, context: Context = QUIET
) -> ExportSource:
    """A stored run's models. ``base`` is the pretrained model if it is no longer at the recipe's path.

    Raises:
        StoreError: the run is not a merge, or only its tables are stored.
        CheckpointError: ``base`` is not the model that was merged.
    """
    recipe = run.recipe
    if recipe is None:
        raise StoreError(f"Run {run.id} is the evaluation of one checkpoint, not a merge; convert that file instead.")
    if not run.has_model:
        raise StoreError(f"Run {run.id} has no stored weights; run its recipe again to get them.")
    subfolders = {task: _make_task_folder(task) for task in run.models} if run.per_task else {MERGED: ""}
    subfolders = _make_distinct(subfolders)
    models = {subfolders[key]: model for key, model in run.open_models().items()}
    first_model = next(iter(models.values()))
    text_sources, no_text_reason = (
        ([], "") if holds_tokens(first_model) else _find_pretrained_text_sources(run, recipe, base, context)
    )
    return ExportSource(
        title=run.title,
        models=models,
        tasks={subfolders[task]: task for task in run.models} if run.per_task else {},
        base=None,
        parents=find_parents(run, recipe, hub_ids),
        metadata=collect_merge_metadata(run, recipe),
        states={subfolder: model.file_fingerprint() for subfolder, model in models.items()},
        text_sources=(first_model, *text_sources),
        no_text_reason=no_text_reason,
        recipe=anonymize_recipe(recipe),
        run=run,
        modules=run.open_modules(first_model),
    )


def _find_pretrained_text_sources(
    run: Run, recipe: Recipe, base: Source | None, context: Context
) -> tuple[list[Checkpoint], str]:
    """A run's pretrained model and the text tower beside it, if they are unchanged; or why they are not used."""
    name = strip_folders(recipe.pretrained)
    try:
        pretrained = open_pretrained(recipe, base)
        towers = find_text_tower_beside(pretrained)
    except (CheckpointError, OSError):
        if base is not None:
            raise
        return [], f"the pretrained model {name} cannot be opened on this machine"
    if not towers and not holds_tokens(pretrained):  # there is no text tower that could have changed
        return [pretrained], ""
    digest = DIGESTS.digest(pretrained, context.meter(pretrained.nbytes))
    if digest == run.inputs[PRETRAINED]:
        return [pretrained, *towers], ""
    if base is not None:
        raise CheckpointError(f"{strip_folders(pretrained.label)} is not the pretrained model of run {run.id}.")
    return [], f"{name} is no longer the pretrained model that was merged"


def open_pretrained(recipe: Recipe, base: Source | None) -> Checkpoint:
    """The pretrained model of a recipe, or ``base`` instead. Raises CheckpointError if it cannot be opened."""
    return open_checkpoint(recipe.pretrained if base is None else base, PRETRAINED)


def open_single_checkpoint(
    source: Source, base: Source | None, hub_ids: Mapping[str, str], context: Context = QUIET
) -> ExportSource:
    """One checkpoint in any format; an adapter becomes a model with its ``base``.

    Raises:
        CheckpointError: the checkpoint cannot be read, or it is an adapter without a base.
        Cancelled: the caller cancelled.
    """
    checkpoint, base_checkpoint = open_with_base(source, base)
    named_checkpoints = [(checkpoint.name, checkpoint)] + (
        [] if base_checkpoint is None else [(PRETRAINED, base_checkpoint)]
    )
    check_hub_ids(hub_ids, [name for name, _ in named_checkpoints])
    state = checkpoint.file_fingerprint()
    meter = context.meter(sum(checkpoint.nbytes for _, checkpoint in named_checkpoints))
    meter.report_part(0, READING)
    parents = [_describe_parent(name, checkpoint, hub_ids, meter) for name, checkpoint in named_checkpoints]
    metadata = {key: checkpoint.metadata[key] for key in CARRIED_METADATA if key in checkpoint.metadata}
    if not {"engine_version", "source_sha256"} <= metadata.keys():
        sources = json.dumps({parent.label: parent.digest for parent in parents[:1]})
        metadata = {"source_sha256": sources, "engine_version": __version__}
        metadata |= {"base_sha256": parents[1].digest} if base_checkpoint is not None else {}
    return ExportSource(
        checkpoint.name,
        {"": checkpoint},
        {},
        base_checkpoint,
        tuple(parents),
        metadata,
        {"": state},
        find_text_sources(checkpoint, base_checkpoint),
    )


def open_with_base(source: Source, base: Source | None) -> tuple[Checkpoint, Checkpoint | None]:
    """A checkpoint and its base.

    Raises:
        CheckpointError: a checkpoint cannot be read, or ``source`` is an adapter without a base.
    """
    base_checkpoint = None if base is None else open_checkpoint(base, PRETRAINED)
    checkpoint = open_checkpoint(source, like=base_checkpoint)
    if isinstance(checkpoint, AdapterCheckpoint):
        raise CheckpointError(
            f"{checkpoint.name} is {checkpoint.title}; name the model that it changes as the base (convert --base)."
        )
    return checkpoint, base_checkpoint


def _describe_parent(name: str, checkpoint: Checkpoint, hub_ids: Mapping[str, str], meter: Meter) -> Parent:
    label = strip_folders(checkpoint.label)
    path = checkpoint.label
    hub_id = hub_ids.get(name) or hub_id_of(path) or hub_id_of(str(Path(path).absolute()))
    return Parent(name, label, DIGESTS.digest(checkpoint, meter), hub_id)


def _make_task_folder(task: str) -> str:
    """The folder of a task's model: the task's name, which is untrusted text, quoted and truncated."""
    name = quote(task, safe=" ")[:MAX_FOLDER_NAME_CHARACTERS].strip(" .")
    return f"{TASKS_FOLDER}/{name or '_'}"


def _make_distinct(subfolders: Mapping[str, str]) -> dict[str, str]:
    """Distinct subfolders, even on a disk that does not distinguish upper and lower case."""
    used_names: set[str] = set()
    return {key: choose_unique_name(subfolder, used_names) for key, subfolder in subfolders.items()}
