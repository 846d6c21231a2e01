"""Export of a network other than CLIP for Transformers: under the pretrained model's names, or as one task's model.

"Network" means any except CLIP. The pretrained model (``TeamBase``) and the experts (``TeamMember``) of a network were
merged as a team: their tensors have shared names, and the head of each expert's task is left out and stored beside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import torch
from torch import Tensor

from merging.base.errors import CheckpointError, MergingError
from merging.base.files.paths import choose_unique_name
from merging.base.text import first_few, printable
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.checkpoint_views import CheckpointView, DerivedTensor, TensorSlice, stored_model
from merging.models.formats.adapter_checkpoint import AdaptedCheckpoint
from merging.models.formats.configs import COMPANION_FILES, TRANSFORMERS
from merging.models.formats.model_sources import ModelRef, Source
from merging.models.formats.safetensors import SafetensorsWriter
from merging.models.model_references import expert_key
from merging.models.network_facts import title_of
from merging.models.team.task_heads_file import HEADS_FILE, read_heads
from merging.models.team.team import TeamBase, TeamMember
from merging.models.team.vocabulary_choices import COMMON
from merging.models.tensor_info import TensorInfo
from merging.recipes.recipe import Recipe
from merging.sharing.export.companion_files import (
    Companions,
    copy_companions,
    count_token_rows,
    has_other_tokens,
    has_tokenizer,
)
from merging.sharing.export.export_source import ExportSource, open_pretrained
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import Run

WEIGHTS_FILE = "model.safetensors"
NO_HEADS_PROBLEM = "CLIP's heads are made from class names, so a task has no stored head; leave out --task."
HEADS_FOLDER, HEAD_FILE = (
    "heads",
    "head.safetensors",
)  # the folder of all heads, and a head's file in the folder of its expert
Heads = Mapping[str, Mapping[str, Tensor]]  # {task: {tensor: value}}


@dataclass(frozen=True)
class NetworkExport:
    """The inputs of a network's export: models by subfolder, files beside them, and the heads of tasks."""

    source: ExportSource
    models: Mapping[str, Checkpoint]
    title: str  # the name of such networks; empty if unknown
    companions: Companions  # configuration and tokenizer
    heads: Heads = field(default_factory=dict)
    expert_folders: Mapping[str, Path | None] = field(default_factory=dict)  # the folder of each expert
    task: str = ""  # the task whose head the model has; empty: the pretrained model with merged weights
    no_companions_reason: str = ""  # why the pretrained model's folder, with its other files, is unknown

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        heads = sum(value.nbytes for head in self.heads.values() for value in head.values())
        return sum(model.nbytes for model in self.models.values()) + heads


def is_network(source: ExportSource) -> bool:
    """Whether these models are of a network other than CLIP, whose parameters are inferred from names and shapes."""
    return next(iter(source.models.values())).is_inferred


def make_open_clip_error(model: Checkpoint) -> CheckpointError:
    """The error of an export to open_clip of a network other than CLIP."""
    network_title = title_of(model.infos) or "another network"
    return CheckpointError(f"Only CLIP towers can be exported to open_clip; this is {network_title}. Use --to hf.")


def prepare_network(source: ExportSource, base: Source | None = None, task: str = "") -> NetworkExport:
    """The export of these models.

    ``base`` is for runs only: the pretrained model if it is no longer at the recipe's path.

    Raises:
        CheckpointError: ``task`` is not an expert with a head, or its expert cannot be opened.
    """
    title = title_of(next(iter(source.models.values())).infos)
    run, recipe = source.run, source.run.recipe if source.run is not None else None
    if run is None or recipe is None:
        if task:
            raise CheckpointError("Only runs hold heads of tasks; export the run, or leave out --task.")
        (model,) = source.models.values()
        return NetworkExport(source, source.models, title, _find_companions(model, source.base))
    heads = read_heads(run.file(HEADS_FILE)) if HEADS_FILE in run.files else {}
    if task:
        return _prepare_for_task(source, run, recipe, heads, task, title)
    no_companions_reason, folder = "", None
    try:
        folder = open_pretrained(recipe, base).folder
    except (MergingError, OSError) as error:
        no_companions_reason = str(error)
    expert_folders = {name: _find_expert_folder(ModelRef(text)) for name, text in recipe.experts if name in heads}
    return NetworkExport(
        source,
        source.models,
        title,
        Companions(folder),
        heads,
        expert_folders,
        no_companions_reason=no_companions_reason,
    )


def _find_companions(model: Checkpoint, base: Checkpoint | None) -> Companions:
    """The files beside a checkpoint; for an adapter, those beside ``base``, the model it changes, and beside itself."""
    if base is None or not isinstance(stored_model(model), AdaptedCheckpoint):
        return Companions(model.folder)
    rows = count_token_rows(model)
    return Companions(
        base.folder,
        model.folder,
        uses_expert_tokens=has_other_tokens(model.folder, base.folder, rows),
        token_rows=(count_token_rows(base), rows),
    )


def _find_expert_folder(model: ModelRef) -> Path | None:
    """The folder of an expert; None if it cannot be opened any more."""
    try:
        return model.open().folder
    except (MergingError, OSError):
        return None


def _prepare_for_task(
    source: ExportSource, run: Run, recipe: Recipe, heads: Heads, task: str, title: str
) -> NetworkExport:
    """The merged model with one task's head, with the names in that expert's file."""
    _require_head(task, heads, f"Run {run.id}")
    opened = open_inputs(recipe)
    expert = opened.experts[task]
    if not isinstance(expert, TeamMember) or opened.digests()[expert_key(task)] != run.inputs.get(expert_key(task)):
        raise CheckpointError(
            f"The file of {printable(task)} has changed since it was merged, so its head does not fit it. Run the "
            "recipe again, or restore the former file."
        )
    merged = source.models.get("") or next(source.models[at] for at, name in source.tasks.items() if name == task)
    head = MappingCheckpoint(heads[task], task)
    tensors: dict[str, DerivedTensor] = {}
    rows = count_token_rows(merged), count_token_rows(expert.inner)  # of the token tables; ``inner`` is the file
    # Without COMMON, the token tables are the pretrained model's, which the expert's tokenizer does not fit.
    uses_expert_tokens = recipe.vocabulary == COMMON and has_other_tokens(
        expert.folder, opened.pretrained.folder, rows[1]
    )
    uses_expert_rows = uses_expert_tokens or not has_tokenizer(opened.pretrained.folder)
    for name, stored_name in expert.stored.items():  # {name in the team: name in the expert's file}
        merged_tensor = DerivedTensor(merged.infos[name], (TensorSlice.whole(merged, name),))
        tensors[stored_name] = (
            _shape_as_stored(merged, name, expert.inner, stored_name) if uses_expert_rows else merged_tensor
        )
    assert isinstance(opened.pretrained, TeamBase)
    for name, stored_name in opened.pretrained.team.heads[task].items():
        tensors[stored_name] = DerivedTensor(head.infos[name], (TensorSlice.whole(head, name),))
    models = {"": CheckpointView(merged, tensors, keeps_digest=False)}
    companions = Companions(
        opened.pretrained.folder,
        expert.folder,
        uses_expert_tokens,
        token_rows=rows if uses_expert_rows else rows[::-1],  # the second number is that of the written tables
    )
    return NetworkExport(source, models, title, companions, task=task)


def check_task(recipe: Recipe, task: str, base: Path | None = None) -> None:
    """Raise CheckpointError if a recipe's merge will store no head for a task; only names and shapes are read.

    ``base`` is the folder of the recipe's relative paths.
    """
    pretrained = open_inputs(recipe, base).pretrained
    if not pretrained.is_inferred:
        raise CheckpointError(NO_HEADS_PROBLEM)
    if isinstance(pretrained, TeamBase):
        _require_head(task, pretrained.team.heads, "This merge")


def _require_head(task: str, heads: Collection[str], owner: str) -> None:
    if task not in heads:
        known = f"the heads of {first_few(heads)}" if heads else "no heads"
        raise CheckpointError(f"{owner} stores no head of {printable(task)!r}; it stores {known}.")


def _shape_as_stored(merged: Checkpoint, name: str, expert: Checkpoint, stored_name: str) -> DerivedTensor:
    """A merged tensor in the shape of the expert's; additional rows of a table are the expert's own."""
    info, shape = merged.infos[name], expert.infos[stored_name].shape
    if info.shape == shape:
        return DerivedTensor(info, (TensorSlice.whole(merged, name),))
    width = info.numel // max(info.shape[0], 1)
    common_scalars = min(info.shape[0], shape[0]) * width
    parts = [TensorSlice(merged, name, 0, common_scalars)]
    if common_scalars < shape[0] * width:
        parts.append(TensorSlice(expert, stored_name, common_scalars, shape[0] * width))
    has_one_dtype = len({part.source.infos[part.name].dtype for part in parts}) == 1
    return DerivedTensor(TensorInfo(shape, info.dtype if has_one_dtype else torch.float32), tuple(parts))


def write_companions(folder: Path, export: NetworkExport) -> list[str]:
    """Copy the files beside the weights into each model's folder, and write the heads.

    Returns sentences on missing files.
    """
    notes = (
        [f"Nothing beside the weights was copied: {export.no_companions_reason}"] if export.no_companions_reason else []
    )
    for subfolder in export.models:
        target = folder / subfolder
        problems = export.companions.copy_to(target)
        notes += [f"{name} was not copied: {reason}" for name, reason in problems.items()]
        absent_files = [name for name in COMPANION_FILES if not export.companions.has_file(name)]
        if absent_files and not export.no_companions_reason:
            owner = f"{export.task}'s or the pretrained model's" if export.task else "the pretrained model's"
            notes.append(
                f"Missing, and so not copied from {owner} folder: {first_few(absent_files, len(absent_files))}."
            )
    used_names: set[str] = set()
    for expert, head in export.heads.items():
        head_folder = folder / HEADS_FOLDER / _choose_folder_name(expert, used_names)
        head_folder.mkdir(parents=True)
        infos = {name: TensorInfo(tuple(value.shape), value.dtype) for name, value in head.items()}
        with SafetensorsWriter(head_folder / HEAD_FILE, infos, {"format": "pt", "task": expert}) as writer:
            for name, value in head.items():
                writer.write(name, value.contiguous())
        copy_companions(export.expert_folders.get(expert), head_folder, (TRANSFORMERS,))
        if not (head_folder / TRANSFORMERS).exists():
            notes.append(f"The head of {printable(expert)} has no {TRANSFORMERS}: its expert has none.")
    return list(dict.fromkeys(notes))


def _choose_folder_name(expert: str, used: set[str]) -> str:
    """A folder's name for an expert, whose name is untrusted text."""
    return choose_unique_name(quote(expert, safe=" ")[:100].strip(" .") or "_", used)
