"""The plan of a benchmark: all decisions and checks before the long work begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.disk import free_bytes
from merging.base.text import size_text
from merging.images.benchmarks.build.benchmark_description import Description, TaskSource, read_classes
from merging.images.benchmarks.build.benchmark_models import BenchmarkModels, open_models
from merging.images.benchmarks.build.class_names import Classes, name_classes
from merging.images.benchmarks.build.data_set_split import Split, split_data_set
from merging.images.benchmarks.build.image_sampling import SampleLimits
from merging.images.data_sets.data_set_formats import open_data
from merging.images.data_sets.labeled_images import DataSet
from merging.images.prompt_sets import read_prompts
from merging.images.text_encoder import LOGIT_SCALE, TextTower
from merging.images.zero_shot_heads import DEFAULT_TEMPLATES, Head, read_head
from merging.models.architecture import add_stated_activation, add_stated_architecture
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import CheckpointView
from merging.models.formats.model_sources import ModelRef, open_stored
from merging.models.model_references import PRETRAINED, strip_folders
from merging.models.text_tower import PROJECTION, text_tower

LOGIT_SCALE_KEY = "logit_scale"


@dataclass(frozen=True)
class PlannedTask:
    """A task with its opened data set; ``head`` is the released head, or None if it is built from the class names."""

    source: TaskSource
    title: str
    data: DataSet
    classes: Classes
    split: Split
    templates: tuple[str, ...]
    head: Head | None


@dataclass(frozen=True)
class Plan:
    """A benchmark to be written.

    ``tower`` is the text tower in memory, which builds heads; None if no head must be built, or if the plan was made
    without it.
    """

    description: Description
    models: BenchmarkModels
    tasks: tuple[PlannedTask, ...]
    tower: TextTower | None
    text_tower: CheckpointView | None  # the text tower in its file, for exports of whole CLIP models

    @property
    def prompt_count(self) -> int:
        """Number of prompts that are encoded for the heads that must be built."""
        return sum(len(task.classes.names) * len(task.templates) for task in self.tasks if task.head is None)

    @property
    def nbytes(self) -> int:
        """The largest number of bytes that the benchmark can take, without the heads."""
        text = self.copied_text_tower.nbytes if self.copied_text_tower else 0
        return self.pixel_bytes + (0 if self.description.models_by_reference else self.models.nbytes) + text

    @property
    def copied_text_tower(self) -> CheckpointView | None:
        """The text tower to copy into the benchmark; None if it stays in the file of a referenced pretrained model."""
        is_in_pretrained = self.description.text in {None, self.description.pretrained}
        return None if is_in_pretrained and self.description.models_by_reference else self.text_tower

    def model_paths(self) -> dict[str, Path]:
        """{name: path} of the models, fetched if they are on the Hub."""
        return {name: model.fetch() for name, model in self.description.models().items()}

    @property
    def pixel_bytes(self) -> int:
        """The largest number of bytes of its images; 0 for referenced images, whose positions take few bytes."""
        return 0 if self.description.by_reference else self.image_count * 3 * self.models.architecture.image_size**2

    @property
    def image_count(self) -> int:
        """The largest number of images that the benchmark can hold."""
        return sum(self.limits.count_sampled(task.split) for task in self.tasks)

    @property
    def limits(self) -> SampleLimits:
        """The numbers of images to sample from each data set."""
        return SampleLimits(self.description.images, self.description.exemplars)


def plan_benchmark(description: Description, device: torch.device | str = "cpu", *, tower: bool = True) -> Plan:
    """The plan of a description's benchmark, with every file opened once.

    Without ``tower`` the text tower is located but not read, which is enough to show the plan.

    Raises:
        TaskError, CheckpointError: a data set or model cannot be used.
    """
    trained = description.models()
    models = open_models(trained.pop(PRETRAINED), trained, description.activation, description.stated)
    tasks = tuple(_plan_task(task, description, models) for task in description.tasks)
    needed = any(task.head is None for task in tasks)
    text = _find_text_tower(description, models.architecture.embed_dim, needed=needed)
    if not needed or not tower or text is None:
        return Plan(description, models, tasks, None, text)
    return Plan(description, models, tasks, TextTower.open(text.inner, device), text)  # ``inner``: the whole model


def _find_text_tower(description: Description, width: int, *, needed: bool) -> CheckpointView | None:
    """The text tower, not read yet; None if there is none and no head needs it."""
    source = ModelRef(description.text or description.pretrained, description.base)
    try:
        opened = open_stored(source, strip_folders(source.text))
        # The file may lack a visual tower, whose sizes are then not compared.
        opened = add_stated_architecture(opened, description.stated, sizes=False)
        text = text_tower(add_stated_activation(opened, description.activation))
    except CheckpointError as error:
        if not needed and description.text is None:
            return None
        raise CheckpointError(
            f"{error} Heads are built with the text tower; name the whole model as `text` (--text)."
        ) from None
    text_width = text.infos[PROJECTION].shape[1]
    if text_width != width:
        raise TaskError(
            f"The text tower of {text.name} gives {text_width} features and the pretrained model {width}: they are not "
            "from one model."
        )
    return text


def _plan_task(source: TaskSource, description: Description, models: BenchmarkModels) -> PlannedTask:
    """The plan of one task; its errors name the task."""
    try:
        data = open_data(
            description.resolve_path(source.images), image=source.image_column, label=source.label_column,
            configuration=source.configuration, split=source.test_split,
        )  # fmt: skip
        published = read_prompts(source.prompts).with_wording(source.wording) if source.prompts else None
        user_names = (
            read_classes(description.resolve_path(source.classes))
            if isinstance(source.classes, str)
            else source.classes
        )
        classes = name_classes(data, user_names, published)
        head = None
        if source.head:
            order = published.class_names if published and user_names is None else classes.names
            head = _read_head(description.resolve_path(source.head), classes.names, order, models)
        return PlannedTask(
            source=source,
            title=source.title or (published.title if published else source.key),
            data=data,
            classes=classes,
            split=split_data_set(
                data,
                source.key,
                description.seed,
                source.test_split,
                balanced=description.balanced,
                whole=description.whole,
            ),
            templates=source.templates or (published.templates if published else DEFAULT_TEMPLATES),
            head=head,
        )
    except (TaskError, CheckpointError) as error:
        raise TaskError(f"Task {source.key!r}: {error}") from None


def _read_head(path: Path, names: Sequence[str], order: Sequence[str], models: BenchmarkModels) -> Head:
    """A released head with its rows in the order of ``names``; ``order`` has the names in the file's order."""
    head = read_head(path, len(order), models.architecture.embed_dim, read_logit_scale(models.pretrained))
    if tuple(names) == tuple(order):
        return head
    if len(set(order)) < len(order):
        raise TaskError(f"{path.name}: two of its classes have one name, so its rows cannot be distinguished.")
    position = {name: number for number, name in enumerate(order)}
    return Head(head.rows[[position[name] for name in names]], head.scale)


def read_logit_scale(pretrained: Checkpoint) -> float:
    """The factor that turns cosines into logits: from the pretrained model's file, else OpenAI's."""
    if LOGIT_SCALE_KEY not in pretrained.infos or pretrained.infos[LOGIT_SCALE_KEY].numel != 1:
        return LOGIT_SCALE
    return float(pretrained.read(LOGIT_SCALE_KEY).float().exp())


def check_room(plan: Plan, folder: Path) -> None:
    """Raise TaskError if the disk has too little space; temporary pixels count a second time."""
    needed, free = plan.nbytes + plan.pixel_bytes, free_bytes(folder.absolute().parent)
    if needed > free:
        raise TaskError(
            f"The benchmark needs up to {size_text(needed)} for {plan.image_count:,} images and the models; "
            f"{size_text(free)} are free. Ask for fewer images, or leave them in their files (--by-reference)."
        )
