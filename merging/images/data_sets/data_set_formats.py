"""Opens a data set of any known format, and checks its labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from merging.base.errors import TaskError
from merging.base.text import first_few
from merging.images.data_sets.labeled_images import DataSet

MAX_CLASSES = 1_000_000


def open_data(
    path: Path,
    *,
    image: str | None = None,
    label: str | None = None,
    configuration: str | None = None,
    split: str | None = None,
) -> DataSet:
    """The data set at a path: a folder of class folders, an npz, WebDataset tars, or a Hugging Face data set.

    A Hugging Face data set is arrow or parquet files, which may be in a repository's folder of the Hub's cache.

    Args:
        image, label: columns of a Hugging Face data set that has several; in tars, endings of the members' names.
        configuration: the one to open, if a Hugging Face data set has several.
        split: a split to read although its name is not that of a part; it becomes a part of this name.

    Raises:
        TaskError: the path holds no data set, or a damaged one.
    """
    from merging.base.files.npz import is_npz
    from merging.images.data_sets.hub_cache import find_snapshot, title

    if not path.exists():
        raise TaskError(f"{path.name or path}: there is no such file or folder.")
    path = find_snapshot(path)
    name = title(path)
    if path.is_file() and is_npz(path):
        from merging.images.data_sets.npz_images import ArrayData

        return check_labels(ArrayData(path), name)
    return check_labels(_open_published(path, name, image, label, configuration, split), name)


def _open_published(
    path: Path, name: str, image: str | None, label: str | None, configuration: str | None, split: str | None
) -> DataSet:
    """A data set in tables, tars or class folders."""
    from merging.images.data_sets.hugging_face import TableData
    from merging.images.data_sets.image_folder import FolderData
    from merging.images.data_sets.table_layouts import find_tables
    from merging.images.data_sets.web_dataset import TarData, find_tars

    if tables := find_tables(path, name, configuration, split):
        return TableData(tables, image, label)
    if configuration is not None:
        raise TaskError(f"{name} has no configurations, so {configuration[:60]!r} cannot be chosen.")
    if tars := find_tars(path, name):
        return TarData(tars, image, label)
    if path.is_dir():
        return FolderData(path)
    raise TaskError(
        f"{name} is not a data set of a known format: give a folder of class folders, an npz, WebDataset tars, or "
        "the folder of a Hugging Face data set."
    )


def check_labels(data: DataSet, name: str) -> DataSet:
    """The same data set after a check of its labels; with ``lists_classes``, a note names classes without an image.

    Raises:
        TaskError: a label is outside the classes, or a class has no image and no published list names the classes.
    """
    if not any(len(labels) for labels in data.parts.values()):
        raise TaskError(f"{name} holds no images.")
    for part, labels in data.parts.items():
        if len(labels) and (labels.min() < 0 or labels.max() >= data.class_count):
            hint = " Labels count from 0; are these from 1?" if labels.min() == 1 else ""
            raise TaskError(
                f"{name}: labels of part {part!r} are in {labels.min()} … {labels.max()}, and there are "
                f"{data.class_count} classes.{hint}"
            )
    if data.class_count > MAX_CLASSES:
        raise TaskError(f"{name}: labels reach {data.class_count - 1:,}; at most {MAX_CLASSES:,} classes are read.")
    counts = np.sum([np.bincount(labels, minlength=data.class_count) for labels in data.parts.values()], axis=0)
    if empty := np.flatnonzero(counts == 0).tolist():
        names = [data.class_names[number] if data.class_names else str(number) for number in empty]
        if not data.lists_classes:
            count = f" ({len(names)} such classes)" * (len(names) > 1)
            raise TaskError(f"{name}: class {names[0]!r} has no image{count}.")
        data.notes += (
            f"{len(names)} of its {data.class_count} classes have no image in these files, such as "
            f"{first_few(names, 3)}.",
        )
    return data
