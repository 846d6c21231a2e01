"""Export of a run or a checkpoint to a folder that Transformers or open_clip loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merging.base.errors import CheckpointError, StoreError
from merging.base.files.atomic import replace_file
from merging.base.files.disk import require_space
from merging.base.files.records import write_json
from merging.base.files.tables import SCORES, csv_bytes, table_file
from merging.base.progress import Meter
from merging.models.checkpoint import Checkpoint
from merging.models.digest_cache import READING
from merging.models.formats.model_sources import Source
from merging.models.formats.named_architecture import named_architecture
from merging.models.model_references import PRETRAINED
from merging.models.stated_architecture import StatedArchitecture
from merging.sharing.export.destination import list_files, replace_folder, write_mark
from merging.sharing.export.export_names import NO_TASK, PEFT, TARGETS
from merging.sharing.export.export_source import ExportSource, open_run, open_single_checkpoint, open_with_base
from merging.sharing.export.export_tower import ExportTower, complete_tower
from merging.sharing.export.model_card import Card, write_card
from merging.sharing.export.network_export import (
    NO_HEADS_PROBLEM,
    WEIGHTS_FILE,
    is_network,
    make_open_clip_error,
    prepare_network,
    write_companions,
)
from merging.sharing.export.targets import ExportTarget, find_target
from merging.sharing.export.text_side import TextSide, choose_text_side, find_text_sources
from merging.sharing.export.weight_files import SHARD_BYTES, WRITING_PHASE, write_weight_file, write_weights
from merging.study.runs.run import RECIPE, Run
from merging.tasks.context import QUIET, Context

SPARE_BYTES = 1 << 20  # disk space that is required for all files except weights
ONLY_NETWORKS_PROBLEM = "Only networks other than CLIP are exported as adapters; export this model with --to hf."
TASK_FOLDERS_FILE = "tasks.json"  # {task: folder of its model}; written if each task has its own model


@dataclass(frozen=True)
class ExportResult:
    """The result of an export: its folder, its files and the bytes of its weights.

    ``target_key`` is "hf", "open_clip", "peft", or "file" for a single file. ``warnings`` are sentences for users of
    the model, ``missing_parts`` sentences on what the export lacks, such as a text tower.
    """

    folder: Path
    target_key: str
    files: tuple[str, ...]
    nbytes: int
    warnings: tuple[str, ...]
    missing_parts: tuple[str, ...] = ()


def export(  # noqa: PLR0913 - the public contract
    source: Run | Source,
    folder: Path | str,
    *,
    to: str = "hf",
    base: Source | None = None,
    activation: str | None = None,
    architecture: str = "",
    text_tower: Source | None = None,
    hub_ids: Mapping[str, str] | None = None,
    overwrite: bool = False,
    shard_bytes: int = SHARD_BYTES,
    task: str = "",
    rank: int = 0,
    force: bool = False,
    context: Context = QUIET,
) -> ExportResult:
    """Write a model as a folder: weights, configurations, recipe, tables, scores and a model card.

    With a text tower it is a whole CLIP model. Equal runs give equal bytes. It is written completely or not at all.

    Args:
        source: a stored run, or a checkpoint in any format that can be opened.
        to: the target: "hf" for Transformers, "open_clip", or "peft" for an adapter of a network other than CLIP.
        base: the pretrained model, for an adapter, a file that lacks parts, or a run without it at the recipe's path.
        activation, architecture: facts that no file states: "gelu"; "heads=12", an open_clip name or a config's path.
        text_tower: a model whose text tower replaces that of the source or base, or "none" for no text tower.
        hub_ids: {parent's name: repository on the Hub}, for the card.
        overwrite, shard_bytes: replace an earlier export; size above which weights for Transformers are divided.
        task: for networks other than CLIP, the expert whose head and configuration the model gets.
        rank, force: the rank of an adapter; write it even if it retains less than half of some tensor's change.

    Raises:
        StoreError: the run has no stored weights, the folder exists already, or the disk is full.
        CheckpointError: not a whole visual tower, or no file states a fact that its shapes do not determine.
        Cancelled: the caller cancelled; nothing is written.
    """
    target, folder = find_target(TARGETS[0] if to == PEFT else to), Path(folder)  # ``target`` is unused for PEFT
    contexts = context.split({READING: 0.0 if isinstance(source, Run) else 1.0, WRITING_PHASE: 1.0})
    opened_source = _open_source(source, base, hub_ids or {}, task, contexts[READING])
    if to == PEFT:
        return _export_adapter(opened_source, folder, base, task, rank, force, overwrite, contexts[WRITING_PHASE])
    if is_network(opened_source):
        return _export_network(opened_source, folder, to, base, task, overwrite, shard_bytes, contexts[WRITING_PHASE])
    stated = _find_stated_architecture(opened_source, architecture)
    towers = _make_towers(opened_source, target, activation, stated, text_tower)
    tensors = {subfolder: target.view_tensors(tower) for subfolder, tower in towers.items()}
    meter = contexts[WRITING_PHASE].meter(model_bytes := sum(one.nbytes for one in tensors.values()))
    meter.report_part(0, WRITING_PHASE)
    require_space(folder, model_bytes + _count_module_bytes(opened_source) + SPARE_BYTES)
    with replace_folder(folder, overwrite=overwrite) as partial_folder:
        for subfolder, tower in towers.items():
            tower_folder, metadata = partial_folder / subfolder, _make_tower_metadata(opened_source, tower, subfolder)
            _write_tower(tower_folder, tower, tensors[subfolder], target, metadata, shard_bytes, meter)
            _check_unchanged(opened_source, subfolder)
        _write_extras(partial_folder, opened_source)
        write_card(partial_folder, Card(opened_source, towers, target, model_bytes))
        write_mark(partial_folder, opened_source.run, to)
    files = tuple(sorted(list_files(folder)))
    return ExportResult(folder, to, files, model_bytes, _list_warnings(towers), _list_missing_parts(towers))


def _open_source(
    source: Run | Source, base: Source | None, hub_ids: Mapping[str, str], task: str, context: Context
) -> ExportSource:
    """The source of the export, with its parents."""
    if isinstance(source, Run):
        opened_source = open_run(source, hub_ids, base, context)
    else:
        opened_source = open_single_checkpoint(source, base, hub_ids, context)
    if task and not is_network(opened_source):
        raise CheckpointError(NO_HEADS_PROBLEM)
    return opened_source


def _export_network(
    opened_source: ExportSource,
    folder: Path,
    target_key: str,
    base: Source | None,
    task: str,
    overwrite: bool,
    shard_bytes: int,
    context: Context,
) -> ExportResult:
    """See ``export``, for a network other than CLIP."""
    from merging.sharing.export.network_card import write_network_card

    if target_key != TARGETS[0]:
        raise make_open_clip_error(next(iter(opened_source.models.values())))
    network_export = prepare_network(opened_source, base, task)
    meter = context.meter(network_export.nbytes)
    require_space(folder, network_export.nbytes + SPARE_BYTES)
    with replace_folder(folder, overwrite=overwrite) as partial_folder:
        for subfolder, model in network_export.models.items():
            (partial_folder / subfolder).mkdir(parents=True, exist_ok=True)
            task_entry = {"task": opened_source.tasks.get(subfolder, task)} if task or opened_source.tasks else {}
            write_weights(
                partial_folder / subfolder,
                model,
                WEIGHTS_FILE,
                {**opened_source.metadata, **task_entry, "format": "pt"},
                meter,
                shard_bytes,
            )
        for subfolder in opened_source.models:
            _check_unchanged(opened_source, subfolder)
        missing_parts = write_companions(partial_folder, network_export)
        _write_extras(partial_folder, opened_source)
        write_network_card(partial_folder, network_export, missing_parts)
        write_mark(partial_folder, opened_source.run, target_key)
        files = tuple(sorted(list_files(partial_folder)))
    cautions = tuple(caution for model in opened_source.models.values() for caution in model.cautions)
    return ExportResult(folder, target_key, files, network_export.nbytes, cautions, tuple(missing_parts))


def _export_adapter(
    opened_source: ExportSource,
    folder: Path,
    base: Source | None,
    task: str,
    rank: int,
    force: bool,
    overwrite: bool,
    context: Context,
) -> ExportResult:
    """See ``export``, for the change of a network other than CLIP as a LoRA adapter."""
    from merging.sharing.export.adapter_export import make_adapter, open_adapter_base, write_adapter
    from merging.sharing.export.network_card import write_adapter_card

    if task or not is_network(opened_source):
        raise CheckpointError(NO_TASK if task else ONLY_NETWORKS_PROBLEM)
    meter = context.meter(0)
    pretrained = open_adapter_base(opened_source, base, meter)
    adapter = make_adapter(opened_source, pretrained, rank, meter, force=force)
    with replace_folder(folder, overwrite=overwrite) as partial_folder:
        parent_ids = {parent.name: parent.model_id for parent in opened_source.parents}
        nbytes = write_adapter(partial_folder, adapter, parent_ids.get(PRETRAINED, ""), opened_source.metadata)
        _check_unchanged(opened_source, "")
        _write_extras(partial_folder, opened_source)
        write_adapter_card(partial_folder, prepare_network(opened_source, base), adapter)
        write_mark(partial_folder, opened_source.run, PEFT)
        files = tuple(sorted(list_files(partial_folder)))
    return ExportResult(folder, PEFT, files, nbytes, (), tuple(adapter.notes))


def _write_tower(
    folder: Path,
    tower: ExportTower,
    tensors: Checkpoint,
    target: ExportTarget,
    metadata: Mapping[str, str],
    shard_bytes: int,
    meter: Meter,
) -> None:
    """Write one model's weights and configurations."""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, tensors, target.file, metadata, meter, target.max_file_bytes(shard_bytes))
    for name, config in target.make_configs(tower).items():
        write_json(folder / name, config)


def _find_stated_architecture(opened_source: ExportSource, architecture: str) -> StatedArchitecture:
    """The architecture that the caller states, or else the models' recipe."""
    return named_architecture(architecture or (opened_source.recipe.architecture if opened_source.recipe else ""))


def _make_towers(
    opened_source: ExportSource,
    target: ExportTarget,
    activation: str | None,
    stated: StatedArchitecture,
    text_tower: Source | None,
) -> dict[str, ExportTower]:
    """{subfolder: model as a complete tower}; all have the same text side."""
    towers = {
        subfolder: complete_tower(model, opened_source.base, activation, stated)
        for subfolder, model in opened_source.models.items()
    }
    text, image_only = _find_text_side(
        next(iter(towers.values())), opened_source.text_sources, text_tower, stated, target
    )
    image_only = image_only and (opened_source.no_text_reason or image_only)
    return {subfolder: replace(tower, text=text, image_only=image_only) for subfolder, tower in towers.items()}


def describe_limits(
    model: Source,
    base: Source | None = None,
    *,
    to: str,
    activation: str | None = None,
    architecture: str = "",
    text_tower: Source | None = None,
) -> str:
    """A sentence on what an export of a model will lack; empty if it will be a whole CLIP model.

    ``model`` may be the pretrained model of a merge that is not computed yet. Only names and shapes are read.

    Raises:
        CheckpointError: such a model cannot be exported.
    """
    target, stated = find_target(TARGETS[0] if to == PEFT else to), named_architecture(architecture)
    checkpoint, base_checkpoint = open_with_base(model, base)
    if checkpoint.is_inferred:
        if to not in {TARGETS[0], PEFT}:
            raise make_open_clip_error(checkpoint)
        return ""
    if to == PEFT:
        raise CheckpointError(ONLY_NETWORKS_PROBLEM)
    tower = complete_tower(checkpoint, base_checkpoint, activation, stated)
    text, image_only = _find_text_side(
        tower, find_text_sources(checkpoint, base_checkpoint), text_tower, stated, target
    )
    tower = replace(tower, text=text, image_only=image_only)
    target.view_tensors(tower)
    return tower.note


def _find_text_side(
    tower: ExportTower,
    text_sources: Sequence[Checkpoint],
    text_tower: Source | None,
    stated: StatedArchitecture,
    target: ExportTarget,
) -> tuple[TextSide | None, str]:
    """The text side that is exported with a tower, and ""; or None, and the reason."""
    text, reason = choose_text_side(text_sources, tower.architecture.embed_dim, text_tower, stated.text_heads)
    if text is None or not (refusal := target.find_refusal(text, tower)):
        return text, reason
    if text_tower is not None:
        raise CheckpointError(f"{text.source} cannot be the text tower: {refusal}.")
    return None, refusal


def export_file(
    run: Run, path: Path, *, activation: str | None = None, architecture: str = "", context: Context = QUIET
) -> ExportResult:
    """Write a run's model as one safetensors file under the pretrained model's names, with the metadata of ``export``.

    Raises:
        StoreError: the run has one model per task or no stored weights, or the file cannot be written.
        Cancelled: the caller cancelled; nothing is written.
    """
    if run.per_task:
        raise StoreError(f"Run {run.id} has one model per task; export it to a folder.")
    source = open_run(run, {})
    (model,) = source.models.values()
    tower = (
        None
        if model.is_inferred
        else complete_tower(model, None, activation, _find_stated_architecture(source, architecture))
    )
    meter = context.meter(model.nbytes)
    require_space(path, model.nbytes)
    with replace_file(path) as partial_file:
        metadata = {**source.metadata, "format": "pt"} if tower is None else _make_tower_metadata(source, tower, "")
        write_weight_file(partial_file, model, metadata, meter)
    return ExportResult(path, "file", (path.name,), model.nbytes, () if tower is None else tower.warnings)


def _check_unchanged(source: ExportSource, subfolder: str) -> None:
    """Raise CheckpointError if a model's file was overwritten since it was opened."""
    model = source.models[subfolder]
    if model.file_fingerprint() != source.states[subfolder]:
        raise CheckpointError(f"{model.name} was changed while it was being read; export again.")


def _make_tower_metadata(source: ExportSource, tower: ExportTower, subfolder: str) -> dict[str, str]:
    task = {"task": source.tasks[subfolder]} if subfolder in source.tasks else {}
    tower_entries = {"format": "pt", "hidden_act": tower.activation, "architecture": tower.architecture_json}
    return {**source.metadata, **task, **tower_entries}


def _list_missing_parts(towers: Mapping[str, ExportTower]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for tower in towers.values() if (note := tower.note)))


def _list_warnings(towers: Mapping[str, ExportTower]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(warning for tower in towers.values() for warning in tower.warnings))


def _count_module_bytes(source: ExportSource) -> int:
    """Bytes of the modules that an adapt, the last step of a recipe, put on top of the model."""
    return sum(part.nbytes for _, _, part in source.modules.parts()) if source.modules else 0


def _write_extras(folder: Path, source: ExportSource) -> None:
    """Write the modules, the recipe, the methods' tables, the scores, and the file that maps tasks to folders."""
    if source.modules is not None:
        source.modules.write(folder)
    if source.recipe is not None:
        (folder / RECIPE).write_text(source.recipe.to_yaml(), "utf-8")
    if source.tasks:
        write_json(folder / TASK_FOLDERS_FILE, {task: subfolder for subfolder, task in source.tasks.items()})
    run = source.run
    if run is None:
        return
    for name in (*run.tables, *([SCORES] if run.has_scores else [])):
        path = folder / table_file(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(csv_bytes(run.plain_table(name)))
