"""Opens a data set of any known format, and checks its labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from merging.datasets.base import DataSet
from merging.errors import TaskError


def open_data(path: Path, *, image: str | None = None, label: str | None = None) -> DataSet:
    """The data set at a path: a folder of class folders, an npz, or a Hugging Face data set (arrow or parquet files).

    Args:
        image, label: columns of a Hugging Face data set that has several.

    Raises:
        TaskError: the path holds no data set, or a damaged one; says what is wrong with it.
    """
    from merging.datasets.hugging_face import TableData, tables
    from merging.datasets.image_folder import FolderData
    from merging.datasets.npz_images import ArrayData
    from merging.files.npz import is_npz

    if not path.exists():
        raise TaskError(f"{path.name or path}: there is no such file or folder.")
    if path.is_file() and is_npz(path):
        return checked(ArrayData(path), path.name)
    if files := tables(path):
        return checked(TableData(path, files, image, label), path.name)
    if path.is_dir():
        return checked(FolderData(path), path.name)
    raise TaskError(
        f"{path.name} is no known data set: give a folder of class folders, an npz, or the folder of a Hugging "
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
        names = [data.class_names[number] if data.class_names else str(number) for number in empty]
        raise TaskError(f"{name}: class {names[0]!r} has no image{f' ({len(names)} such classes)' * (len(names) > 1)}.")
    return data
