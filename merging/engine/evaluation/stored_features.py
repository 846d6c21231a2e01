"""Image features of earlier evaluations, stored in half precision, with the classes and margins before the rounding.

Stored features therefore change no score. An entry serves the same model, benchmark, data set and split only. A damaged
entry counts as absent. When all entries take more than ``MOST`` bytes, the least recently used are removed.
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

FOLDER, VERSION = "features", 1  # in a store
MOST = 2_000_000_000  # bytes of all entries of a store
WORTH = 10**12  # operations of forward passes from which on features are stored: 100 images of ViT-B/32


@dataclass(frozen=True, eq=False, slots=True)
class FeatureAnswers:
    """Features (n, embed_dim) of a split's images, their predicted classes (n,), and their margins (n,)."""

    features: Tensor
    predicted: NDArray[np.int64]
    margins: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StoredFeatures:
    """The stored features of one model; ``folder`` holds those of all models, ``model`` identifies the weights.

    They are also read from the folders ``libraries``, which are never written to.
    """

    folder: Path
    model: str
    libraries: tuple[Path, ...] = ()

    def part(self, name: str) -> StoredFeatures:
        """The stored features of one model of a merge that gives several."""
        return replace(self, model=f"{self.model} {name}")

    def read(self, benchmark: Benchmark, key: str, split: str) -> FeatureAnswers | None:
        """The stored answers of a split; None if there are none."""
        name = self._name(benchmark, key, split)
        path = next((folder / name for folder in (self.folder, *self.libraries) if (folder / name).is_file()), None)
        if path is None:
            return None
        try:
            with Npz(path) as arrays:
                features, predicted, margins = (arrays.read(name) for name in ("features", "predicted", "margins"))
        except TaskError:
            return None
        if not len(features) == len(predicted) == len(margins) == benchmark.count(key, split):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # marks the entry as recently used
        floats = torch.from_numpy(features.astype(np.float32))
        return FeatureAnswers(floats, predicted.astype(np.int64), margins.astype(np.float32))

    def store(self, benchmark: Benchmark, key: str, split: str, answers: FeatureAnswers, tower: Architecture) -> None:
        """Store the answers of a split, if computing them again would take long; a full disk is no error."""
        if not is_worth_storing(len(answers.features), tower):
            return
        with np.errstate(over="ignore"):
            halves = answers.features.numpy().astype(np.float16)
        if not np.isfinite(halves).all():  # too large for half precision
            return
        arrays: dict[str, NDArray[Any]] = {
            "features": halves,
            "predicted": answers.predicted.astype(np.int32),
            "margins": answers.margins,
        }
        with contextlib.suppress(OSError, StoreError):
            with replace_file(self.folder / self._name(benchmark, key, split)) as partial:
                npz.write_npz(partial, {n: (ArrayInfo(a.shape, a.dtype), [a.tobytes()]) for n, a in arrays.items()})
            _remove_oldest(self.folder)

    def _name(self, benchmark: Benchmark, key: str, split: str) -> str:
        return f"{short_digest(json.dumps([VERSION, self.model, benchmark.digest, key, split]))}.npz"


def is_worth_storing(images: int, tower: Architecture) -> bool:
    """Whether the features of this number of images take long enough to compute that storing them pays."""
    return images * _operations(tower) >= WORTH


def _operations(tower: Architecture) -> float:
    """Operations of a forward pass of one image, approximately: two for each weight of a block and each token."""
    tokens = (tower.image_size // tower.patch_size) ** 2 + 1
    return 2.0 * tokens * 12 * tower.layers * tower.width**2


def _remove_oldest(folder: Path) -> None:
    """Remove the least recently used entries until the others take at most ``MOST`` bytes."""
    states = [(path.stat(), path) for path in folder.glob("*.npz")]
    total = 0
    for state, path in sorted(states, key=lambda one: one[0].st_mtime, reverse=True):
        total += state.st_size
        if total > MOST:
            path.unlink(missing_ok=True)
