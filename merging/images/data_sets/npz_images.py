"""Images in an npz archive: arrays of pixels with labels, for the whole data set or for each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from merging.base.errors import TaskError
from merging.base.files.npz import Npz
from merging.base.text import first_few
from merging.images.data_sets.labeled_images import PART_NAMES, WHOLE, DataSet, Labels, part_of_name
from merging.images.preprocess import MAX_PIXELS, to_image

IMAGE_ARRAYS, LABEL_ARRAYS = ("images", "image", "x", "data"), ("labels", "label", "y", "targets")
PART_ARRAY, CLASS_NAMES_ARRAY, FEATURES_ARRAY = "split", "class_names", "features"
MAX_ROWS = 10_000_000  # images of an array


class ArrayData(DataSet):
    """The arrays ``images`` as uint8, (n, h, w), (n, h, w, 1 or 3) or (n, 1 or 3, h, w), and ``labels`` (n,).

    An archive may also have ``class_names`` and, for parts, ``split`` (n,) with the part of each image, or arrays such
    as ``train_images`` and ``x_test``.
    """

    kind = "npz archive"

    def __init__(self, path: Path) -> None:
        self._path = path
        with Npz(path) as archive:
            names = {name.casefold(): name for name in archive.infos}
            if FEATURES_ARRAY in names and not any(name in names for name in IMAGE_ARRAYS):
                raise TaskError(
                    f"{path.name} holds features of one model, not images. Merging changes the model and so the "
                    "features; a benchmark needs images. `mergescope benchmark score` evaluates that one model."
                )
            self._arrays = _find_parts(names)
            if not self._arrays:
                raise TaskError(f"{path.name} has no arrays 'images' and 'labels'; it has {first_few(archive.infos)}.")
            labels = {part: self._read_labels(archive, *pair) for part, pair in self._arrays.items()}
            self._rows = {part: np.arange(len(part_labels)) for part, part_labels in labels.items()}
            if PART_ARRAY in names and list(labels) == [WHOLE]:
                self._rows = _group_rows(archive.read(names[PART_ARRAY]), len(labels[WHOLE]), path.name)
                self._arrays = dict.fromkeys(self._rows, self._arrays[WHOLE])
                labels = {part: labels[WHOLE][rows] for part, rows in self._rows.items()}
            if CLASS_NAMES_ARRAY in names:
                self.class_names = tuple(map(str, archive.read(names[CLASS_NAMES_ARRAY]).tolist()))
            self.parts: Mapping[str, Labels] = labels

    def _read_labels(self, archive: Npz, images: str, labels: str) -> Labels:
        """Labels (n,) of one part; raises TaskError if its images have another form, or the labels do not fit them."""
        info, label_info = archive.infos[images], archive.infos[labels]
        if info.dtype != np.uint8 or _color_axis(info.shape) is None:
            raise TaskError(
                f"{archive.name}: {images!r} must be images of bytes (uint8), (n, h, w), (n, h, w, 3) or (n, 3, h, w); "
                f"got {info.dtype} {info.shape}."
            )
        if label_info.dtype.kind not in "iu" or label_info.shape not in {info.shape[:1], (*info.shape[:1], 1)}:
            raise TaskError(
                f"{archive.name}: {labels!r} must be one whole number for each of the {info.shape[0]} images; got "
                f"{label_info.dtype} {label_info.shape}."
            )
        if info.shape[0] > MAX_ROWS or info.nbytes // max(info.shape[0], 1) > 4 * MAX_PIXELS:
            raise TaskError(f"{archive.name}: {images!r} is too large ({info.shape}).")
        return archive.read(labels).reshape(-1).astype(np.int64)

    def read_images(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Image.Image | TaskError]]:
        name, rows = self._arrays[part][0], self._rows[part]
        with Npz(self._path) as archive:
            is_channels_first = _color_axis(archive.infos[name].shape) == 1
            for index, (_, pixels) in zip(
                indices, archive.read_rows(name, (int(rows[i]) for i in indices)), strict=True
            ):
                yield index, to_image(np.moveaxis(pixels, 0, -1).copy() if is_channels_first else pixels)


def _color_axis(shape: tuple[int, ...]) -> int | None:
    """The axis of colors, 0 for gray images without one; None if the shape is not that of images."""
    if len(shape) == 3:
        return 0
    if len(shape) != 4:
        return None
    return 3 if shape[3] in {1, 3} else 1 if shape[1] in {1, 3} else None


def _find_parts(names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """{part: (stored name of its images, of its labels)}."""
    pairs: dict[str, tuple[str, str]] = {}
    for part_name, part in PART_NAMES.items():
        for pattern in (f"{part_name}_{{}}", f"{{}}_{part_name}"):
            if pair := _find_pair(names, pattern):
                pairs.setdefault(part, pair)
    whole = _find_pair(names, "{}")
    return pairs or ({WHOLE: whole} if whole else {})


def _find_pair(names: Mapping[str, str], pattern: str) -> tuple[str, str] | None:
    """The stored names of an array of images and one of labels, by a pattern such as 'train_{}'."""
    images, labels = ([names[pattern.format(name)] for name in usual_names if pattern.format(name) in names]
                      for usual_names in (IMAGE_ARRAYS, LABEL_ARRAYS))  # fmt: skip
    return (images[0], labels[0]) if images and labels else None


def _group_rows(part_names: NDArray[Any], count: int, name: str) -> dict[str, NDArray[np.intp]]:
    """{part: its rows (m,)}, from ``part_names`` (count,) with the part of each image."""
    if part_names.shape != (count,) or part_names.dtype.kind != "U":
        got = f"{part_names.dtype} {part_names.shape}"
        raise TaskError(f"{name}: 'split' must name a part for each of the {count} images; got {got}.")
    words = np.unique(part_names).tolist()
    if unknown := [word for word in words if part_of_name(word) is None]:
        raise TaskError(f"{name}: 'split' has {first_few(unknown)}; parts are named train, val and test.")
    rows: dict[str, NDArray[np.intp]] = {}
    for part in dict.fromkeys(str(part_of_name(word)) for word in words):
        rows[part] = np.flatnonzero(np.isin(part_names, [word for word in words if part_of_name(word) == part]))
    return rows
