"""Benchmarks: data sets with class names, their images, and the frozen zero-shot heads, read from one folder.

The zero-shot head of a task is a classifier: one unit row per class, made of the class names' text features. A task is
in domain for a merge if its expert is merged, else out of domain. A referenced task, or model, stays in its own files;
the benchmark stores where they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.npz import Npz, read_array_infos
from merging.base.files.paths import path_fingerprint
from merging.base.progress import Meter
from merging.base.settings import BUNDLED_FOLDER, benchmark_folder
from merging.base.text import did_you_mean
from merging.images.benchmarks import data_set_locations
from merging.images.benchmarks.data_set_locations import DIGESTS_ARRAY, SIZES_ARRAY, Location
from merging.images.benchmarks.manifest import checked_path
from merging.images.benchmarks.model_search import find_models
from merging.images.benchmarks.referenced_images import POSITIONS_ARRAY, Images, build_referenced_images
from merging.images.exemplars import TaskExemplars
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint
from merging.models.formats.model_sources import ModelRef, open_checkpoint
from merging.models.model_references import PRETRAINED, bundled_reference, model_file, reference_to
from merging.tasks.pack_folders import pack_name

SPLITS = ("choosing", "reporting")  # the halves of each test set: one to choose values on, one to report
EXEMPLARS = "exemplars"  # the split of training images, which methods may see
MULTITASK = "multitask"  # the name of the model that was trained on all tasks
PACKED_DIGEST = "packed_digest"  # in tasks.json of a pack: the digest of the benchmark that is described
BUNDLED_IMAGES = "bundled"  # in tasks.json, where the images are those of the bundled benchmark
HASHED_BYTES = 1 << 22  # bytes read at a time to compute a digest


@dataclass(frozen=True, slots=True)
class Task:
    """A data set with its classes."""

    key: str
    title: str
    class_names: tuple[str, ...]
    descriptions: tuple[str, ...]
    source: str
    license: str
    has_expert: bool
    is_referenced: bool = False  # whether its images stay in the data set's files and are decoded on demand
    splits: tuple[str, ...] = SPLITS  # of its test images; ("reporting",) if the whole test set is for reporting


@dataclass(frozen=True)
class Benchmark:
    """A folder of tasks, images, heads and checkpoints in the layout of sample_data/."""

    folder: Path
    tasks: tuple[Task, ...]
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    has_bundled_images: bool = False  # whether its images are those of the bundled benchmark, which has them in files
    packed_digest: str = ""  # of the benchmark that this one in a pack describes, without images, heads and models

    @classmethod
    def load(cls, folder: Path | None = None) -> Self:
        """The benchmark in ``folder`` (default: ``settings.benchmark_folder()``).

        Raises:
            TaskError: tasks.json is missing, malformed, or changed since it was written.
        """
        folder = folder or benchmark_folder()
        path = checked_path(folder, "tasks.json")
        try:
            data = json.loads(path.read_text("utf-8"))
            preprocess = data["preprocess"]
            tasks = tuple(_parse_task(entry, folder) for entry in data["tasks"])
            return cls(
                folder, tasks, int(preprocess["image_size"]), tuple(preprocess["mean"]), tuple(preprocess["std"]),
                has_bundled_images=data.get("images") == BUNDLED_IMAGES,
                packed_digest=str(data.get(PACKED_DIGEST, "")),
            )  # fmt: skip
        except OSError:
            raise TaskError(f"There is no benchmark here: {path.name} is missing in {folder.name}/.") from None
        except (ValueError, KeyError, TypeError) as error:
            raise TaskError(f"{path.name} of {folder.name}/ is malformed: {error!r}.") from None

    def find_task(self, key: str) -> Task:
        """The task with that key; raises TaskError for an unknown key and suggests the nearest one."""
        for task in self.tasks:
            if task.key == key:
                return task
        keys = [task.key for task in self.tasks]
        raise TaskError(f"There is no task {key!r}.{did_you_mean(key, keys)} Known: {', '.join(keys)}.")

    @property
    def experts(self) -> dict[str, str]:
        """Task key -> reference of its expert, for the tasks that have one."""
        return {task.key: self._reference(task.key) for task in self.tasks if task.has_expert}

    @property
    def pretrained(self) -> str:
        """Reference of the pretrained model."""
        return self._reference(PRETRAINED)

    @cached_property
    def pretrained_tower(self) -> Checkpoint | None:
        """The pretrained model, whose architecture counts for state dicts without metadata; None if it is missing."""
        path = model_file(self.folder / "models", PRETRAINED)
        return open_checkpoint(path) if path.is_file() else None

    @property
    def multitask(self) -> str | None:
        """Reference of the model trained on all tasks together, if there is one."""
        return self._reference(MULTITASK) if model_file(self.folder / "models", MULTITASK).is_file() else None

    def models(self) -> dict[str, ModelRef]:
        """{"pretrained": model, task key: its expert}, and "multitask" if there is one."""
        references = {PRETRAINED: self.pretrained, **self.experts, MULTITASK: self.multitask}
        return {name: ModelRef(reference) for name, reference in references.items() if reference}

    def open_pretrained(self) -> Checkpoint:
        """The pretrained model. Raises CheckpointError if it cannot be opened."""
        return ModelRef(self.pretrained).open(PRETRAINED)

    def _reference(self, name: str) -> str:
        return bundled_reference(self.folder, name) or reference_to(model_file(self.folder / "models", name))

    def load_images(self, key: str, split: str) -> tuple[Images, NDArray[np.int64]]:
        """Images (n, h, w, 3) as uint8 and labels (n,) of a split: exemplars, choosing or reporting.

        Raises:
            TaskError: there is no such file or split, its arrays do not belong together, or the file has changed.
        """
        images, labels = self.load_unlabeled(key, split), self.load_labels(key, split)
        if len(images) != len(labels):
            raise TaskError(
                f"{key}.npz: {split!r} must be (n, height, width, 3) uint8 images and n labels; "
                f"got {images.shape} and {labels.shape}."
            )
        return images, labels

    def load_labels(self, key: str, split: str) -> NDArray[np.int64]:
        """The labels (n,) of a split; its images are not read. Raises TaskError as ``load_images``."""
        self.require_split(key, split)
        path = self._image_file(key)
        labels = _read_labels(path, path_fingerprint(path), split)
        classes = len(self.find_task(key).class_names)
        if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            raise TaskError(f"{key}.npz: {split!r} has labels outside 0 … {classes - 1}.")
        return labels.astype(np.int64)

    def load_unlabeled(self, key: str, split: str) -> Images:
        """Images (n, h, w, 3) of a split as uint8; its labels are not read. Raises TaskError as ``load_images``.

        The images of a referenced task are decoded on demand.
        """
        task = self.find_task(key)
        self._refuse_packed("images")
        if task.is_referenced:
            files = self._files(task)
            with self._archive(key, split) as arrays:
                positions = arrays.read(_array_name(split, POSITIONS_ARRAY))
            return build_referenced_images(files, positions, self.image_size, f"{key}.npz")
        with self._archive(key, split) as arrays:
            images = arrays.read(_array_name(split, "images"))
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise TaskError(
                f"{key}.npz: {split!r} must be (n, height, width, 3) uint8 images and n labels; "
                f"got {images.dtype} {images.shape}."
            )
        return images

    @contextlib.contextmanager
    def _archive(self, key: str, split: str) -> Iterator[Npz]:
        """The open npz of a task, for reading a split."""
        self.require_split(key, split)
        path = self._image_file(key)
        with _name_split_in_errors(path, split), Npz(path) as arrays:
            yield arrays

    def _image_file(self, key: str) -> Path:
        """The npz of a task. Raises TaskError if it has changed since the benchmark was made."""
        return checked_path(self._images_folder, f"data/{key}.npz")

    @property
    def _images_folder(self) -> Path:
        """The folder of the benchmark that has the images."""
        return BUNDLED_FOLDER if self.has_bundled_images else self.folder

    def require_split(self, key: str, split: str) -> None:
        """Raise TaskError if a task does not have this half of its test set, because all of it is for reporting."""
        task = self.find_task(key)
        if split in SPLITS and split not in task.splits:
            raise TaskError(
                f"{task.title} has no {split} half: its whole test set is for reporting. Use the reporting images, or "
                "a benchmark whose test sets are cut in halves."
            )

    def check_images(self, keys: Iterable[str]) -> None:
        """Raise TaskError if files that these tasks refer to are missing or have changed."""
        for task in map(self.find_task, keys):
            if task.is_referenced:
                self._files(task)

    def relink_files(self, search_folder: Path, meter: Meter) -> list[str]:
        """Search a folder for the missing files and models that the benchmark refers to, and store their new paths.

        Returns sentences on files and models that are still missing. Raises Cancelled as the meter does.
        """
        problems = []
        for task in [task for task in self.tasks if task.is_referenced]:
            locations = data_set_locations.find_moved_files(self._locations(task), search_folder, meter)
            data_set_locations.write_locations(self.folder / "data" / f"{task.key}.npz", locations)
            problems.append(data_set_locations.describe_missing(self.folder, task.title, locations))
        return [*filter(None, problems), *find_models(self.folder, search_folder, meter)]

    def _files(self, task: Task) -> list[Location]:
        """The files of a referenced task; raises TaskError if some are missing or have changed."""
        files = self._locations(task)
        if problem := data_set_locations.describe_missing(self.folder, task.title, files):
            raise TaskError(problem)
        return files

    def _locations(self, task: Task) -> list[Location]:
        with self._archive(task.key, task.splits[-1]) as arrays:  # any split: all share these arrays
            digests, sizes = arrays.read(DIGESTS_ARRAY), arrays.read(SIZES_ARRAY)
        return data_set_locations.read_locations(self.folder, task.key, digests, sizes)

    def count_images(self, key: str, split: str) -> int:
        """Number of images of a split, without reading them; 0 if it cannot be read."""
        try:
            return read_array_infos(self._images_folder / "data" / f"{key}.npz")[_array_name(split, "labels")].shape[0]
        except (TaskError, KeyError, IndexError):
            return 0

    def preprocess(self, images: NDArray[np.uint8]) -> Tensor:
        """Normalized float32 images (n, 3, h, w) from pixels (n, h, w, 3)."""
        writable = np.require(images, requirements="W")  # torch warns about read-only arrays
        x = torch.from_numpy(writable).permute(0, 3, 1, 2).to(torch.float32) / 255
        return (x - torch.tensor(self.mean).reshape(3, 1, 1)) / torch.tensor(self.std).reshape(3, 1, 1)

    def exemplars(self, per_task: int, seed: int = 0) -> dict[str, Tensor]:
        """{task: preprocessed images (n, 3, h, w)}: a seeded sample of each expert task's training part."""
        return {key: sample.images for key, sample in self.labeled_exemplars(per_task, seed).items()}

    def labeled_exemplars(self, per_task: int, seed: int = 0) -> dict[str, TaskExemplars]:
        """{task: exemplars}: the images of ``exemplars`` with their labels and the task's head."""
        sampled = {}
        for key in self.experts:
            images, labels = self.load_images(key, EXEMPLARS)
            indices = sample_indices(len(images), per_task, seed)
            preprocessed, classes = self.preprocess(images[indices]), torch.from_numpy(labels[indices])
            sampled[key] = TaskExemplars(preprocessed, classes, self.load_head(key), self.logit_scale)
        return sampled

    def test_data(
        self, tasks: Iterable[str], split: str = SPLITS[0], per_task: int | None = None, seed: int = 0
    ) -> dict[str, TaskExemplars]:
        """{task: images of a split with the task's head, without labels}, sampled like exemplars; None takes all.

        Tasks that the benchmark does not have are left out. Labels are not read.
        """
        keys, sampled = {task.key for task in self.tasks}, {}
        for key in tasks:
            if key in keys:
                images = self.load_unlabeled(key, split)
                indices = sample_indices(len(images), per_task, seed)
                sampled[key] = TaskExemplars(
                    self.preprocess(images[indices]), None, self.load_head(key), self.logit_scale
                )
        return sampled

    def _refuse_packed(self, what: str) -> None:
        """Raise TaskError if this is only a description in a pack, which has none of ``what``."""
        if self.packed_digest:
            raise TaskError(
                f"The {what} of this benchmark are not in {self._pack}, which has results only. What needs them can be "
                "seen where the benchmark itself is."
            )

    @property
    def _pack(self) -> str:
        return pack_name(self.folder) or "the pack"

    @cached_property
    def _heads(self) -> Checkpoint:
        self._refuse_packed("zero-shot heads")
        return open_checkpoint(checked_path(self.folder, "heads.safetensors"))

    @property
    def logit_scale(self) -> float:
        """The factor that turns cosines into logits."""
        return float(self._heads.read("logit_scale"))

    def load_head(self, key: str) -> Tensor:
        """The frozen zero-shot classifier of a task: unit rows (classes, embed_dim), float32.

        Raises:
            TaskError: the head is missing, or does not have one row per class.
        """
        task = self.find_task(key)
        if key not in self._heads.infos:
            raise TaskError(f"heads.safetensors has no head for task {key!r}.")
        head = self._heads.read(key).to(torch.float32)
        if head.ndim != 2 or len(head) != len(task.class_names):
            raise TaskError(f"The head of {key!r} is {tuple(head.shape)}; expected {len(task.class_names)} rows.")
        return head

    @cached_property
    def digest(self) -> str:
        """The sha-256 of everything that affects a score: tasks, images and heads.

        Raises:
            TaskError: a file is damaged.
        """
        if self.packed_digest:
            return self.packed_digest
        digest = hashlib.sha256(checked_path(self.folder, "tasks.json").read_bytes())
        digest.update(self._heads.digest.encode())
        for task in self.tasks:
            with self._image_file(task.key).open("rb") as file:
                while piece := file.read(HASHED_BYTES):
                    digest.update(piece)
        return digest.hexdigest()

    def describe_misfit(self, checkpoint: Checkpoint) -> str:
        """The reason why a checkpoint cannot be evaluated on this benchmark; empty if it can."""
        if self.packed_digest:
            return f"{self._pack} has only results of this benchmark, not its images."
        if checkpoint.network:  # the title of a network other than CLIP
            return f"images pass through CLIP towers; this is {checkpoint.network}."
        try:
            tower = Architecture.from_checkpoint(checkpoint)
        except CheckpointError as error:
            return str(error)
        if tower.image_size != self.image_size:
            model_side, side = tower.image_size, self.image_size
            return f"the model takes images of {model_side} × {model_side}, the benchmark has {side} × {side}."
        width = self.load_head(self.tasks[0].key).shape[1]
        if tower.embed_dim != width:
            return f"the model gives {tower.embed_dim} features, the benchmark's heads take {width}."
        return ""


def sample_indices(image_count: int, per_task: int | None, seed: int) -> NDArray[np.int64]:
    """Indices (n,) of a seeded sample of ``per_task`` of ``image_count`` images, increasing; None takes all."""
    return np.sort(np.random.default_rng(seed).permutation(image_count)[:per_task])


def _array_name(split: str, content: str) -> str:
    """The name of an array in a task's npz, such as 'exemplar_images' or 'choosing_labels'."""
    return f"{split.removesuffix('s')}_{content}"


@lru_cache(maxsize=64)  # every table of answers needs the labels of all tasks
def _read_labels(path: Path, fingerprint: tuple[int, ...], split: str) -> NDArray[Any]:
    """The labels (n,) of a split as stored, read once while the file has this fingerprint. Raises TaskError."""
    with _name_split_in_errors(path, split), Npz(path) as arrays:
        labels = arrays.read(_array_name(split, "labels"))
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise TaskError(f"labels are n whole numbers; got {labels.dtype} {labels.shape}.")
    return labels


@contextlib.contextmanager
def _name_split_in_errors(path: Path, split: str) -> Iterator[None]:
    """Name the file and split in a TaskError that the block raises."""
    try:
        yield
    except TaskError as error:
        raise TaskError(f"{path.name} has no readable {split!r} split: {error}") from None


def _parse_task(entry: Mapping[str, Any], folder: Path) -> Task:
    key = str(entry["key"])
    return Task(
        key=key,
        title=str(entry["title"]),
        class_names=tuple(map(str, entry["class_names"])),
        descriptions=tuple(map(str, entry.get("descriptions", ()))),
        source=str(entry.get("source", "")),
        license=str(entry.get("license", "")),
        has_expert=bool(entry.get("has_expert")) or model_file(folder / "models", key).is_file(),
        is_referenced=bool(entry.get("referenced", False)),
        splits=tuple(split for split in SPLITS if split in entry.get("splits", SPLITS)) or SPLITS,
    )
