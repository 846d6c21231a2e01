"""Makes a benchmark folder from the user's data sets, experts and heads, in the format that ``Benchmark`` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.base.files.atomic import file_hash, publish, replace, temporary_beside
from merging.base.files.disk import sync_all
from merging.base.files.records import write_json
from merging.base.text import printable
from merging.base.version import __version__
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.benchmark_folders import TEXT_TOWER
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_models import (
    read_normalization,
    write_models,
    write_references,
    write_text_tower,
)
from merging.images.benchmarks.build.benchmark_plan import (
    LOGIT_SCALE_KEY,
    Plan,
    PlannedTask,
    check_room,
    plan_benchmark,
)
from merging.images.benchmarks.build.image_sampling import WrittenTask, write_task
from merging.images.benchmarks.data_set_locations import LOCATIONS_SUFFIX
from merging.images.benchmarks.manifest import MADE_BY, MANIFEST, has_manifest
from merging.images.data_sets.hub_cache import find_snapshot, title
from merging.images.zero_shot_heads import Head, Tokenize, build_head, fill_template
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import save
from merging.tasks.context import QUIET, Context

TASKS_FILE, HEADS_FILE = "tasks.json", "heads.safetensors"
IMAGES_PHASE, HEADS_PHASE, MODELS_PHASE = "Reading images", "Building heads", "Writing models"
TIME_SHARES = {IMAGES_PHASE: 0.6, HEADS_PHASE: 0.3, MODELS_PHASE: 0.1}  # approximate shares of the time
MAX_LISTED_IMAGES = 20  # damaged images that the manifest lists
SCALE_TOLERANCE = 0.01  # largest relative difference between the logit scales of heads


def write_benchmark(
    description: Description,
    folder: Path,
    *,
    force: bool = False,
    context: Context = QUIET,
    tokenize: Tokenize | None = None,
    complete: Callable[[Benchmark], object] = lambda benchmark: None,
) -> Benchmark:
    """The benchmark of a description, written to ``folder``, which appears complete or not at all.

    Args:
        force: replace a folder that this function made before.
        tokenize: see ``zero_shot_heads.build_head``.
        complete: called with the benchmark in its temporary folder, to add more before it appears.

    Raises:
        TaskError: a data set, class names or a head cannot be used.
        CheckpointError: a model cannot be opened, or does not fit the pretrained model.
        StoreError: the folder cannot be written, or the disk is full; an existing folder is unchanged.
        Cancelled: the user cancelled; nothing is written.
    """
    _check_target(folder, force)
    planned = plan_benchmark(description, choose_device(context.device))
    check_room(planned, folder)
    with temporary_beside(folder) as partial:
        _Build(planned, partial, context.split(TIME_SHARES)).run(tokenize)
        complete(Benchmark.load(partial))
        sync_all(partial)
        partial.chmod(0o755)  # it was private while it was incomplete
        if force and folder.exists():
            replace(partial, folder.absolute())
        elif not publish(partial, folder.absolute()):
            _check_target(folder, force)  # another process made it meanwhile
    return Benchmark.load(folder.resolve())


def _check_target(folder: Path, force: bool) -> None:
    """Raise TaskError unless the folder is empty, or is a benchmark that may be replaced."""
    is_replaceable = has_manifest(folder)
    if folder.exists() and not is_replaceable and (not folder.is_dir() or any(folder.iterdir())):
        raise TaskError(f"{folder.name} exists and was not made by this command; choose another folder.")
    if is_replaceable and not force:
        raise TaskError(f"{folder.name}/ exists already; replace it with --overwrite, or choose another folder.")


@dataclass
class _Build:
    """The work on one folder, with a context for each of its parts."""

    plan: Plan
    folder: Path
    contexts: Mapping[str, Context]
    written: dict[str, WrittenTask] = field(default_factory=dict)

    def run(self, tokenize: Tokenize | None) -> None:
        """Write everything, the manifest last."""
        self._write_images()
        self._write_heads(tokenize)
        models, text = self.plan.models, self.plan.copied_text_tower
        meter = self.contexts[MODELS_PHASE].meter(models.nbytes + (text.nbytes if text else 0))
        if self.plan.description.models_by_reference:
            write_references(self.folder / "models", models, self.plan.model_paths())
        else:
            write_models(self.folder / "models", models, meter)
        if text is not None:
            write_text_tower(self.folder / TEXT_TOWER, text, models, meter)
        self._write_tasks()
        self._write_manifest()

    def _write_images(self) -> None:
        (self.folder / "data").mkdir()
        description, size = self.plan.description, self.plan.models.architecture.image_size
        meter = self.contexts[IMAGES_PHASE].meter(self.plan.image_count)
        for task in self.plan.tasks:
            path = self.folder / "data" / f"{task.source.key}.npz"
            self.written[task.source.key] = write_task(
                path, task.data, task.split, size, self.plan.limits, meter, task.title, description.by_reference
            )

    def _write_heads(self, tokenize: Tokenize | None) -> None:
        heads: dict[str, Head] = {}
        prompts = {task.source.key: len(task.classes.names) * len(task.templates) for task in self.plan.tasks}
        parts = self.contexts[HEADS_PHASE].split(prompts)
        for task in self.plan.tasks:
            key, tower = task.source.key, self.plan.tower
            if task.head is not None or tower is None:
                assert task.head is not None  # the plan has a tower if any head is to be built
                heads[key] = task.head
                continue
            heads[key] = build_head(tower, task.classes.names, task.templates, tokenize=tokenize, context=parts[key])
        scales = {key: head.scale for key, head in heads.items()}
        low, high = min(scales, key=lambda key: scales[key]), max(scales, key=lambda key: scales[key])
        if scales[high] - scales[low] > SCALE_TOLERANCE * scales[high]:
            raise TaskError(
                f"The heads have different logit scales ({low} {scales[low]:.4g}, {high} {scales[high]:.4g}), so they "
                "are not of one pretrained model."
            )
        rows = {key: head.rows.contiguous() for key, head in heads.items()}
        save(self.folder / HEADS_FILE, rows | {LOGIT_SCALE_KEY: torch.tensor(scales[high])})

    def _write_tasks(self) -> None:
        description = self.plan.description
        mean, std = read_normalization(self.plan.models.pretrained)
        size = self.plan.models.architecture.image_size
        preprocess = {"image_size": size, "mean": list(description.mean or mean), "std": list(description.std or std)}
        tasks = [self._build_entry(task) for task in self.plan.tasks]
        write_json(self.folder / TASKS_FILE, {"preprocess": preprocess, "tasks": tasks})

    def _build_entry(self, task: PlannedTask) -> dict[str, Any]:
        names, description = list(task.classes.names), self.plan.description
        counts = self.written[task.source.key].counts
        optional: dict[str, Any] = {"referenced": True} if description.by_reference else {}
        optional |= {"splits": [split for split in SPLITS if split in counts]} if description.whole else {}
        return {
            "key": task.source.key,
            "title": task.title,
            "group": "in_domain" if task.source.expert else "out_of_domain",
            "class_names": names,
            "descriptions": [fill_template(task.templates[0], name) for name in names],
            "source": task.source.source,
            "license": task.source.license,
            "counts": counts,
            **optional,
        }

    def _write_manifest(self) -> None:
        description, models = self.plan.description, self.plan.models
        # The paths of images may change; their digests are in the tasks' own files.
        files = sorted(p for p in self.folder.rglob("*") if p.is_file() and not p.name.endswith(LOCATIONS_SUFFIX))
        content = {
            "version": 1,
            "made_by": MADE_BY,
            "mergescope": __version__,
            "files": {
                path.relative_to(self.folder).as_posix(): {"sha256": file_hash(path), "bytes": path.stat().st_size}
                for path in files
            },
            "seed": description.seed,
            "images": description.images,
            "exemplars": description.exemplars,
            **({"whole": True} if description.whole else {}),
            **({"licenses": dict(description.licenses)} if description.licenses else {}),
            "models": {name: Path(model.label).name for name, model in self._list_models().items()},
            "digests": {path.stem: open_checkpoint(path).digest for path in (self.folder / "models").iterdir()},
            "cautions": list(models.cautions),
            "tasks": {task.source.key: self._build_task_facts(task) for task in self.plan.tasks},
        }
        write_json(self.folder / MANIFEST, content)

    def _list_models(self) -> dict[str, Any]:
        return {"pretrained": self.plan.models.pretrained, **self.plan.models.trained}

    def _build_task_facts(self, task: PlannedTask) -> dict[str, Any]:
        """How one task was made, for the manifest; "parts" are those of the data set, "draws" the samples of images."""
        written, source, description = self.written[task.source.key], task.source, self.plan.description
        draws = {
            split: {"part": part, "of": total, "n": written.counts[split], "seed": description.seed,
                    "balanced": description.balanced}
            for split, (part, total) in written.sources.items()
        }  # fmt: skip
        cautions = [*task.split.cautions] if source.expert else []
        cautions += [*task.data.notes, *task.classes.cautions]
        if written.overlap:
            cautions.append(f"{written.overlap} test images are also exemplars.")
        return {
            "images": title(find_snapshot(self.plan.description.resolve_path(source.images))),
            "kind": task.data.kind,
            "parts": {part: len(labels) for part, labels in task.data.parts.items()},
            "split": task.split.rule,
            "counts": written.counts,
            "draws": draws,
            "class_names": task.classes.origin,
            **({"prompts": source.prompts, "wording": source.wording} if source.prompts else {}),
            "head": Path(source.head).name if source.head else {"templates": list(task.templates)},
            "damaged": len(written.problems),
            "damaged_images": [printable(problem) for problem in written.problems[:MAX_LISTED_IMAGES]],
            "cautions": cautions,
        }
