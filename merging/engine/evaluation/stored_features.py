"""Features that a model gave before, kept in half precision, with the classes and margins from before the rounding.

So what is kept changes no score. An entry is used for the same model, benchmark, data set and split only; a damaged one
counts as absent, and the entries that were not used for longest are removed when all take more than ``MOST`` bytes.
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
WORTH = 10**12  # operations of forward passes above which features are kept: 100 images of ViT-B/32


@dataclass(frozen=True, eq=False, slots=True)
class FeatureAnswers:
    """Features (n, embed_dim) of a split's images, the classes (n,) that they give, and the margins (n,)."""

    features: Tensor
    predicted: NDArray[np.int64]
    margins: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StoredFeatures:
    """The kept features of one model, in a folder for those of all; ``model`` identifies its weights.

    They are also read in ``libraries``, which are never written to.
    """

    folder: Path
    model: str
    libraries: tuple[Path, ...] = ()

    def part(self, name: str) -> StoredFeatures:
        """Those of one of several models that belong together."""
        return replace(self, model=f"{self.model} {name}")

    def read(self, benchmark: Benchmark, key: str, split: str) -> FeatureAnswers | None:
        """What was kept for a split; None if nothing was."""
        name = self._name(benchmark, key, split)
        path = next((place / name for place in (self.folder, *self.libraries) if (place / name).is_file()), None)
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
            os.utime(path)  # it is used, so it is among the last to be removed
        floats = torch.from_numpy(features.astype(np.float32))
        return FeatureAnswers(floats, predicted.astype(np.int64), margins.astype(np.float32))

    def store(self, benchmark: Benchmark, key: str, split: str, given: FeatureAnswers, tower: Architecture) -> None:
        """Keep the answers of a split, if computing them again would take long; a full disk is no error."""
        if not is_worth_storing(len(given.features), tower):
            return
        with np.errstate(over="ignore"):
            halves = given.features.numpy().astype(np.float16)
        if not np.isfinite(halves).all():  # too large for half precision
            return
        arrays: dict[str, NDArray[Any]] = {
            "features": halves,
            "predicted": given.predicted.astype(np.int32),
            "margins": given.margins,
        }
        with contextlib.suppress(OSError, StoreError):
            with replace_file(self.folder / self._name(benchmark, key, split)) as partial:
                npz.write_npz(partial, {n: (ArrayInfo(a.shape, a.dtype), [a.tobytes()]) for n, a in arrays.items()})
            _remove_oldest(self.folder)

    def _name(self, benchmark: Benchmark, key: str, split: str) -> str:
        return f"{short_digest(json.dumps([VERSION, self.model, benchmark.digest, key, split]))}.npz"


def is_worth_storing(images: int, tower: Architecture) -> bool:
    """Whether the features of so many images take long to compute."""
    return images * _operations(tower) >= WORTH


def _operations(tower: Architecture) -> float:
    """Those of a forward pass of one image, about: two for each weight of a block and each token."""
    tokens = (tower.image_size // tower.patch_size) ** 2 + 1
    return 2.0 * tokens * 12 * tower.layers * tower.width**2


def _remove_oldest(folder: Path) -> None:
    """Remove the entries that were not used for longest until the others take at most ``MOST`` bytes."""
    states = [(path.stat(), path) for path in folder.glob("*.npz")]
    total = 0
    for state, path in sorted(states, key=lambda one: one[0].st_mtime, reverse=True):
        total += state.st_size
        if total > MOST:
            path.unlink(missing_ok=True)
