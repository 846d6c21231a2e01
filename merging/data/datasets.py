"""Data sets on disk, whatever they are stored as: parts with labels, and their images one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from merging.errors import TaskError

TRAIN, VALIDATION, TEST, WHOLE = "train", "validation", "test", "whole"
PART_NAMES = {
    "train": TRAIN, "training": TRAIN, "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION,
    "dev": VALIDATION, "test": TEST, "testing": TEST, "eval": TEST,
}  # fmt: skip
Labels = NDArray[np.int64]


class DataSet(ABC):
    """Images with labels in parts: "train", "validation" and "test", or one part, "whole".

    ``class_names`` are the data's own; None where labels are numbers and nothing else.
    """

    kind: str
    parts: Mapping[str, Labels]
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @abstractmethod
    def pictures(self, part: str, at: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        """(index, image) for increasing indices of a part, or in place of an image what is wrong with it."""

    @property
    def classes(self) -> int:
        """Number of classes: of names, or of labels where there are none."""
        if self.class_names is not None:
            return len(self.class_names)
        return 1 + max(int(labels.max()) for labels in self.parts.values() if len(labels))


def open_data(path: Path, *, image: str | None = None, label: str | None = None) -> DataSet:
    """The data set at a path: a folder of class folders, an npz, or a Hugging Face data set (arrow or parquet files).

    Args:
        image, label: columns of a Hugging Face data set that has several.

    Raises:
        TaskError: what it is instead, or what is wrong with it.
    """
    from merging.data.arrays import ArrayData
    from merging.data.folders import FolderData
    from merging.data.hugging_face import TableData, tables
    from merging.data.npz import is_npz

    if not path.exists():
        raise TaskError(f"{path.name or path}: there is no such file or folder.")
    if path.is_file() and is_npz(path):
        return checked(ArrayData(path), path.name)
    if found := tables(path):
        return checked(TableData(path, found, image, label), path.name)
    if path.is_dir():
        return checked(FolderData(path), path.name)
    raise TaskError(
        f"{path.name} is no data set that is known: give a folder of class folders, an npz, or the folder of a Hugging "
        "Face data set."
    )


def checked(data: DataSet, name: str) -> DataSet:
    """The same data set; raises TaskError if labels are outside the classes, or a class has no image."""
    if not any(len(labels) for labels in data.parts.values()):
        raise TaskError(f"{name} holds no images.")
    for part, labels in data.parts.items():
        if len(labels) and (labels.min() < 0 or labels.max() >= data.classes):
            hint = " Labels count from 0; are these from 1?" if labels.min() == 1 else ""
            raise TaskError(
                f"{name}: labels of part {part!r} lie in {labels.min()} … {labels.max()}, and there are {data.classes} "
                f"classes.{hint}"
            )
    counts = np.sum([np.bincount(labels, minlength=data.classes) for labels in data.parts.values()], axis=0)
    if empty := np.flatnonzero(counts == 0).tolist():
        shown = [data.class_names[number] if data.class_names else str(number) for number in empty]
        raise TaskError(f"{name}: class {shown[0]!r} has no image{f' ({len(shown)} such classes)' * (len(shown) > 1)}.")
    return data


def part_of(name: str) -> str | None:
    """The part that a folder or split of that name is, None if it is none."""
    return PART_NAMES.get(name.casefold())
