"""From a run or a checkpoint to a folder that Transformers or open_clip loads: the one way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merging.checkpoints.digests import READING
from merging.errors import CheckpointError, StoreError
from merging.export.destination import MARK, appearing, files_in
from merging.export.model_card import Card, write_card
from merging.export.source import ExportSource, of_checkpoint, of_run
from merging.export.targets import target
from merging.export.vision_model import Tower, ready
from merging.export.weights import SHARD, WRITING, write, write_file
from merging.files.atomic import appearing_file
from merging.files.disk import require_room
from merging.files.records import write_json
from merging.files.tables import SCORES, csv_bytes, table_file
from merging.formats.opening import Source
from merging.progress import Cancel, Meter, Phases, ProgressCallback
from merging.runs.run import RECIPE, Run

FORMAT = 1
SLACK = 1 << 20  # bytes for everything that is not weights
MODELS = "tasks.json"  # which model is whose, if there is one for each task


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, its files, and what somebody who uses the model should know."""

    folder: Path
    to: str
    files: tuple[str, ...]
    nbytes: int
    warnings: tuple[str, ...]


def export(
    source: Run | Source,
    folder: Path | str,
    *,
    to: str = "hf",
    base: Source | None = None,
    activation: str | None = None,
    hub_ids: Mapping[str, str] | None = None,
    overwrite: bool = False,
    shard_bytes: int = SHARD,
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> Exported:
    """Write a model as a folder: weights, configurations, recipe, tables, scores and a model card.

    The same run gives the same bytes. The folder appears whole or not at all.

    Args:
        source: a stored run, or a checkpoint in any format that can be opened.
        to: "hf" for Transformers or "open_clip".
        base: the pretrained model of an adapter, and of a file that lacks the projection or the text side.
        activation: "quick_gelu" or "gelu", where nothing beside the weights says so.
        hub_ids: {parent's name: repository on the Hub}, for the card.
        overwrite: replace an earlier export.
        shard_bytes: size above which weights for Transformers are divided.
        progress: called with a Progress after every piece.
        cancel: an Event or a callable, asked after every piece.

    Raises:
        StoreError: the run keeps no weights, the folder is there already, or the disk is full.
        CheckpointError: not a whole visual tower, or something is missing that nothing tells.
        Cancelled: ``cancel`` said so; nothing is kept.
    """
    chosen, folder = target(to), Path(folder)
    ids = hub_ids or {}
    phases = Phases({READING: 0.0 if isinstance(source, Run) else 1.0, WRITING: 1.0}, progress)
    if isinstance(source, Run):
        subject = of_run(source, ids)
    else:
        subject = of_checkpoint(source, base, ids, phases.callback(READING), cancel)
    towers = {place: ready(model, subject.base, activation) for place, model in subject.models.items()}
    tensors = {place: chosen.tensors(tower) for place, tower in towers.items()}
    needed = sum(checkpoint.nbytes for checkpoint in tensors.values())
    meter = Meter(needed, phases.callback(WRITING), cancel)
    meter.within(0, WRITING)
    require_room(folder, needed + SLACK)
    with appearing(folder, overwrite=overwrite) as inside:
        for place, tower in towers.items():
            at = inside / place
            at.mkdir(parents=True, exist_ok=True)
            write(at, tensors[place], chosen.file, _metadata(subject, tower, place), meter, chosen.limit(shard_bytes))
            for name, config in chosen.configs(tower).items():
                write_json(at / name, config)
            if subject.models[place].state() != subject.states[place]:
                raise CheckpointError(
                    f"{subject.models[place].name} was changed while it was being read; export again."
                )
        _write_aside(inside, subject)
        write_card(inside, Card(subject, towers, chosen, needed))
        _mark(inside, subject, to)
        files = tuple(sorted(files_in(inside)))
    return Exported(folder, to, files, needed, _warnings(towers))


def export_file(
    run: Run,
    path: Path,
    *,
    activation: str | None = None,
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> Exported:
    """Write a run's model as one safetensors file under the pretrained model's names, with the same metadata.

    Raises:
        StoreError: the run has one model per task or keeps no weights, or the file cannot be written.
        Cancelled: ``cancel`` said so; nothing is kept.
    """
    if run.per_task:
        raise StoreError(f"Run {run.id} has one model per task; they need a folder.")
    subject = of_run(run, {})
    (model,) = subject.models.values()
    tower = ready(model, activation=activation)
    meter = Meter(model.nbytes, progress, cancel)
    require_room(path, model.nbytes)
    with appearing_file(path) as inside:
        write_file(inside, model, _metadata(subject, tower, ""), meter)
    return Exported(path, "file", (path.name,), model.nbytes, tower.warnings)


def _metadata(subject: ExportSource, tower: Tower, place: str) -> dict[str, str]:
    task = {"task": subject.tasks[place]} if place in subject.tasks else {}
    own = {"format": "pt", "hidden_act": tower.activation, "architecture": tower.stated}
    return {**subject.metadata, **task, **own}


def _warnings(towers: Mapping[str, Tower]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(warning for tower in towers.values() for warning in tower.warnings))


def _write_aside(folder: Path, subject: ExportSource) -> None:
    """The recipe, what the methods found, the scores, and which model is whose."""
    if subject.recipe is not None:
        (folder / RECIPE).write_text(subject.recipe.to_yaml(), "utf-8")
    if subject.tasks:
        write_json(folder / MODELS, {task: place for place, task in subject.tasks.items()})
    run = subject.run
    if run is None:
        return
    for name in (*run.tables, *([SCORES] if run.has_scores else [])):
        path = folder / table_file(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(csv_bytes(run.table(name)))


def _mark(folder: Path, subject: ExportSource, to: str) -> None:
    """Say which files are ours, so that a later export knows what it may replace."""
    run = {"run": subject.run.id} if subject.run else {}
    write_json(folder / MARK, {"format": FORMAT, "to": to, **run, "files": sorted(files_in(folder))})
