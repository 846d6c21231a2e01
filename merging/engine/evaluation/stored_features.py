"""Image features of earlier evaluations, stored in half precision, with the classes and margins before the rounding.

The stored classes keep scores exact. An entry is one file for one model, benchmark, data set and split. A damaged entry
counts as absent. When all entries take more than ``MAX_STORE_BYTES``, the least recently used are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.errors import StoreError, TaskError
from merging.base.files import npz
from merging.base.files.atomic import replace_file
from merging.base.files.npz import ArrayInfo, Npz
from merging.base.files.short_digest import short_digest
from merging.models.architecture import Architecture

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark

FOLDER = "features"  # the name of the folder in a store
FORMAT_VERSION = 1  # part of every file name: raising it makes all older entries absent
MAX_STORE_BYTES = 2_000_000_000  # of all entries of a store
MIN_OPERATIONS = 10**12  # operations to compute features, from which on they are stored: 100 images of ViT-B/32


@dataclass(frozen=True, eq=False, slots=True)
class FeaturePredictions:
    """Features (n, embed_dim) of a split's images, their predicted classes (n,), and their margins (n,)."""

    features: Tensor
    predicted: NDArray[np.int64]
    margins: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StoredFeatures:
    """The stored features of one model; ``folder`` holds those of all models, ``model`` identifies the weights.

    They are also read from the folders ``libraries``, in which nothing is ever written.
    """

    folder: Path
    model: str
    libraries: tuple[Path, ...] = ()

    def select_model(self, expert: str) -> StoredFeatures:
        """The stored features of one expert's model, for a merge that gives one model per task."""
        return replace(self, model=f"{self.model} {expert}")

    def read(self, benchmark: Benchmark, key: str, split: str) -> FeaturePredictions | None:
        """The stored entry of a split of the task ``key``; None if there is none."""
        name = self._file_name(benchmark, key, split)
        paths = (folder / name for folder in (self.folder, *self.libraries))
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return None
        try:
            with Npz(path) as archive:
                features, predicted, margins = (archive.read(name) for name in ("features", "predicted", "margins"))
        except TaskError:
            return None
        if not len(features) == len(predicted) == len(margins) == benchmark.count_images(key, split):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # marks the entry as recently used
        float_features = torch.from_numpy(features.astype(np.float32))
        return FeaturePredictions(float_features, predicted.astype(np.int64), margins.astype(np.float32))

    def store(
        self, benchmark: Benchmark, key: str, split: str, predictions: FeaturePredictions, tower: Architecture
    ) -> None:
        """Store the entry of a split, if computing it again would take long. A full disk raises no error."""
        if not is_worth_storing(len(predictions.features), tower):
            return
        with np.errstate(over="ignore"):
            half_precision = predictions.features.numpy().astype(np.float16)
        if not np.isfinite(half_precision).all():  # some numbers are too large for it
            return
        arrays: dict[str, NDArray[Any]] = {
            "features": half_precision,
            "predicted": predictions.predicted.astype(np.int32),
            "margins": predictions.margins,
        }
        with contextlib.suppress(OSError, StoreError):
            with replace_file(self.folder / self._file_name(benchmark, key, split)) as temporary_path:
                contents = {
                    name: (ArrayInfo(array.shape, array.dtype), [array.tobytes()]) for name, array in arrays.items()
                }
                npz.write_npz(temporary_path, contents)
            _remove_oldest(self.folder)

    def _file_name(self, benchmark: Benchmark, key: str, split: str) -> str:
        return f"{short_digest(json.dumps([FORMAT_VERSION, self.model, benchmark.digest, key, split]))}.npz"


def is_worth_storing(image_count: int, tower: Architecture) -> bool:
    """Whether the features of this number of images take long enough to compute that storing them pays."""
    return image_count * _count_operations(tower) >= MIN_OPERATIONS


def _count_operations(tower: Architecture) -> float:
    """Operations of a forward pass of one image, approximately: two for each weight of a block and each token."""
    tokens = (tower.image_size // tower.patch_size) ** 2 + 1  # patches and the class token
    return 2.0 * tokens * 12 * tower.layers * tower.width**2  # a block has 12 width² weights


def _remove_oldest(folder: Path) -> None:
    """Remove the least recently used entries until the others take at most ``MAX_STORE_BYTES``."""
    entries = [(path.stat(), path) for path in folder.glob("*.npz")]
    total = 0
    for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime, reverse=True):  # latest first
        total += status.st_size
        if total > MAX_STORE_BYTES:
            path.unlink(missing_ok=True)
