"""Files of precomputed image features, from which the accuracy of one model can be computed.

Merging changes the model and so the features; therefore a benchmark holds images. A file of features is an npz with
``features`` (n, embed_dim), ``labels`` (n,) and ``model``, the digest of the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from merging.base.errors import TaskError
from merging.base.files import npz
from merging.base.files.npz import ArrayInfo, Npz
from merging.engine.evaluation.image_features import predict
from merging.images.benchmarks.metrics import wilson
from merging.models.checkpoint import Checkpoint

FEATURES, LABELS, MODEL = "features", "labels", "model"


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features (n, embed_dim), labels (n,) and the digest of their model."""

    features: Tensor
    labels: Tensor
    model: str

    @classmethod
    def load(cls, path: Path) -> Self:
        """The features in a file; raises TaskError if it does not hold the three arrays."""
        with Npz(path) as archive:
            features, labels, model = (archive.read(name) for name in (FEATURES, LABELS, MODEL))
        if features.ndim != 2 or features.dtype.kind != "f" or labels.shape != features.shape[:1]:
            raise TaskError(f"{path.name}: {features.dtype} {features.shape} and labels {labels.shape} do not fit.")
        if labels.dtype.kind not in "iu" or model.dtype.kind != "U" or model.size != 1:
            raise TaskError(f"{path.name}: labels are whole numbers, and 'model' is the digest of a checkpoint.")
        (digest,) = model.reshape(-1)
        return cls(
            torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels.astype(np.int64)), str(digest)
        )

    def save(self, path: Path) -> None:
        """Write the features to an npz."""
        arrays: dict[str, np.ndarray[Any, Any]] = {
            FEATURES: self.features.numpy(),
            LABELS: self.labels.numpy(),
            MODEL: np.array(self.model),
        }
        contents = {
            name: (ArrayInfo(array.shape, array.dtype), iter([array.tobytes()])) for name, array in arrays.items()
        }
        npz.write_npz(path, contents)

    def score(self, model: Checkpoint, head: Tensor) -> dict[str, float]:
        """Accuracy of the model with a head of unit rows (classes, embed_dim): correct, n, accuracy, low, high.

        Raises:
            TaskError: the features are of another model, or do not fit the head.
        """
        if model.digest != self.model:
            raise TaskError(
                f"The features are of the checkpoint {self.model[:12]}…, and {model.name} is {model.digest[:12]}…: "
                "features of one model say nothing of another."
            )
        if self.features.shape[1] != head.shape[1]:
            raise TaskError(f"The features have {self.features.shape[1]} numbers, the head {head.shape[1]}.")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(head):
            raise TaskError(f"Labels are outside the head's {len(head)} classes.")
        correct, n = int((predict(self.features, head) == self.labels.numpy()).sum()), len(self.labels)
        low, high = wilson(correct, n)
        return {"correct": correct, "n": n, "accuracy": correct / n if n else float("nan"), "low": low, "high": high}
