"""Everything about a benchmark that can be decided, and refused, before the long work begins."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from merging.benchmarks.benchmark import MULTITASK
from merging.benchmarks.build.class_names import Classes, name_classes
from merging.benchmarks.build.description import Description, TaskSource, read_classes
from merging.benchmarks.build.models import BenchmarkModels, open_models
from merging.benchmarks.build.sampling import budget
from merging.benchmarks.build.splits import Split, split
from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.references import locate
from merging.clip.heads import PLAIN, Head, read_head
from merging.clip.prompt_sets import prompts
from merging.clip.text_encoder import LOGIT_SCALE, TextTower, find_tower
from merging.datasets.base import DataSet
from merging.datasets.opening import open_data
from merging.errors import CheckpointError, TaskError
from merging.formats.opening import open_checkpoint

LOGIT = "logit_scale"


@dataclass(frozen=True)
class PlannedTask:
    """A task with its data set opened; ``head`` is read already, or None if it is to be built from the names."""

    source: TaskSource
    title: str
    data: DataSet
    classes: Classes
    split: Split
    templates: tuple[str, ...]
    head: Head | None


@dataclass(frozen=True)
class Plan:
    """A benchmark to be written. ``tower`` is there if a head is to be built."""

    description: Description
    models: BenchmarkModels
    tasks: tuple[PlannedTask, ...]
    tower: TextTower | None

    @property
    def prompts(self) -> int:
        """How many prompts the heads are built from that are not there yet."""
        return sum(len(task.classes.names) * len(task.templates) for task in self.tasks if task.head is None)

    @property
    def nbytes(self) -> int:
        """Bytes that it will take, at most, but for what the heads take."""
        return self.images * 3 * self.models.architecture.image_size**2 + self.models.nbytes

    @property
    def images(self) -> int:
        """How many images it will hold, at most."""
        wanted = self.description
        return sum(budget(task.data, task.split, wanted.images, wanted.exemplars) for task in self.tasks)


def plan(description: Description, device: torch.device | str = "cpu", *, tower: bool = True) -> Plan:
    """What is going to be written, with every file opened once.

    Without ``tower`` the text tower is only looked for and not read, which is enough to tell what is going to be done.

    Raises:
        TaskError, CheckpointError: what cannot be used, and why.
    """
    trained = {task.key: task.expert for task in description.tasks if task.expert}
    trained |= {MULTITASK: description.multitask} if description.multitask else {}
    models = open_models(description.pretrained, trained, description.base, description.activation)
    tasks = tuple(_task(task, description, models) for task in description.tasks)
    if all(task.head is not None for task in tasks):
        return Plan(description, models, tasks, None)
    source = description.text or description.pretrained
    if not tower:
        find_tower(open_checkpoint(source, "the text tower", description.base))
        return Plan(description, models, tasks, None)
    read = TextTower.open(source, device, description.base, description.activation)
    wide, own = read.embed_dim, models.architecture.embed_dim
    if wide != own:
        raise TaskError(f"The text tower gives {wide} features and the pretrained model {own}: not of one model.")
    return Plan(description, models, tasks, read)


def _task(source: TaskSource, description: Description, models: BenchmarkModels) -> PlannedTask:
    """One task; what is wrong with it is said with its name."""
    base = description.base
    try:
        data = open_data(locate(source.images, base), image=source.image_column, label=source.label_column)
        published = prompts(source.prompts) if source.prompts else None
        given = read_classes(locate(source.classes, base)) if isinstance(source.classes, str) else source.classes
        classes = name_classes(data, given, published)
        head = None
        if source.head:
            order = published.class_names if published and given is None else classes.names
            head = _head(locate(source.head, base), classes.names, order, models)
        return PlannedTask(
            source=source,
            title=source.title or (published.title if published else source.key),
            data=data,
            classes=classes,
            split=split(data, source.key, description.seed),
            templates=source.templates or (published.templates if published else PLAIN),
            head=head,
        )
    except (TaskError, CheckpointError) as error:
        raise TaskError(f"Task {source.key!r}: {error}") from None


def _head(path: Path, names: Sequence[str], order: Sequence[str], models: BenchmarkModels) -> Head:
    """A released head with its rows in the order of the data set's labels; ``order`` is that of the file."""
    found = read_head(path, len(order), models.architecture.embed_dim, logit_scale(models.pretrained))
    if tuple(names) == tuple(order):
        return found
    if len(set(order)) < len(order):
        raise TaskError(f"{path.name}: two of its classes have one name, so its rows cannot be told apart.")
    at = {name: number for number, name in enumerate(order)}
    return Head(found.rows[[at[name] for name in names]], found.scale)


def logit_scale(pretrained: Checkpoint) -> float:
    """What a pretrained model multiplies cosines with, if its file says so; OpenAI's otherwise."""
    if LOGIT not in pretrained.infos or pretrained.infos[LOGIT].numel != 1:
        return LOGIT_SCALE
    return float(pretrained.read(LOGIT).float().exp())


def check_room(plan: Plan, folder: Path) -> None:
    """Raise TaskError if the disk has not room enough; temporary pixels count once more."""
    place = next(parent for parent in folder.absolute().parents if parent.exists())
    square = 3 * plan.models.architecture.image_size**2
    needed, free = 2 * plan.images * square + plan.models.nbytes, shutil.disk_usage(place).free
    if needed > free:
        raise TaskError(
            f"The benchmark needs up to {needed / 1e9:.1f} GB for {plan.images:,} images and the models; "
            f"{free / 1e9:.1f} GB are free. Ask for fewer images."
        )
