"""The sensitivity of a task's loss to every weight: statistics of single examples' gradients, one file per statistic.

Squares and absolute values do not commute with sums over examples, so every example is differentiated by itself. An
expert's statistic is as large as a model. Memory holds one statistic at a time; the others are in a temporary file,
from which slots are read.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from merging.base.devices import is_host, limit_bytes
from merging.base.errors import MergingError
from merging.base.files.disk import free_bytes, temporary_space_error
from merging.base.numerics.linear_algebra import to_float64
from merging.base.threads import run_in_threads
from merging.engine.needs import check_fits
from merging.images.image_encoder import Encoder
from merging.methods.slot import Gradients
from merging.models.checkpoint import Checkpoint
from merging.models.inspection.fit_check import check_fit
from merging.models.tensor_info import raw_bytes, read_span
from merging.models.tower_names import assemble

if TYPE_CHECKING:
    from merging.base.progress import Meter
    from merging.engine.run_inputs import RunInputs
    from merging.images.exemplars import TaskExemplars

MAX_EXAMPLES = 16  # examples that are differentiated together; more would not be faster
GRADIENT_BYTES_CPU = 1 << 28  # bytes that their gradients may take; at least one example is differentiated
GRADIENT_BYTES_GPU = 1 << 32
PHASE = "Computing gradients"


class GradientFile:
    """A file (rows, scalars) of one statistic of the gradients of several losses, such as a row per expert."""

    def __init__(self, file: IO[bytes], inputs: RunInputs, total_bytes: int) -> None:
        self._total_bytes = total_bytes  # of this file and the files created with it, for error messages
        self._file, self._dtype, self._device = file, inputs.dtype, inputs.device
        offsets = np.cumsum([0, *inputs.numels])
        self._starts = {p.name: int(start) for p, start in zip(inputs.parameters, offsets[:-1], strict=True)}
        self._numel, self._row_count = int(offsets[-1]), 0

    def append(self, row: Mapping[str, Tensor]) -> None:
        """Add the next row, {tensor: gradients of its shape (*S)}. Raises MergingError if the disk is full."""
        try:
            for name in self._starts:
                self._file.write(raw_bytes(row[name].to("cpu", self._dtype).reshape(-1)))
            self._file.flush()
        except OSError:
            raise temporary_space_error("The gradients take", self._total_bytes) from None
        self._row_count += 1

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """The scalars [start, stop) of a tensor, (rows, stop - start)."""
        first_scalars = [self._numel * row + self._starts[name] + start for row in range(self._row_count)]
        descriptor, itemsize = self._file.fileno(), self._dtype.itemsize
        rows = [
            read_span(descriptor, first * itemsize, stop - start, self._dtype, "The file of gradients")
            for first in first_scalars
        ]
        return torch.stack(rows).to(self._device)


@contextmanager
def gather_gradients(
    kinds: Collection[Gradients], inputs: RunInputs, exemplars: Mapping[str, TaskExemplars], seed: int, meter: Meter
) -> Iterator[dict[Gradients, GradientFile]]:
    """The statistics ``kinds`` of all experts, valid inside the ``with`` block.

    ``seed`` decides which labels are sampled.

    Raises:
        NeedsError: exemplars or a head do not fit the towers.
        CheckpointError: a checkpoint is not a tower.
        MergingError: the folder for temporary files has no room, or gradients are not finite.
    """
    scalars = sum(inputs.numels)
    examples = sum(len(exemplars[name].images) for name in inputs.experts)
    meter.total += len(kinds) * scalars * examples
    gathered = {}
    with gradient_files(inputs, len(inputs.experts), len(kinds)) as files:
        for kind, file in zip(sorted(kinds), files, strict=True):
            gathered[kind] = file
            pretrained_tower = _GradientTower(inputs.pretrained, inputs) if kind == Gradients.SENSITIVITY else None
            for name, expert in inputs.experts.items():
                tower = pretrained_tower or _GradientTower(expert, inputs)
                file.append(tower.compute_statistic(kind, name, exemplars[name], seed, meter))
        yield gathered


@contextmanager
def gradient_files(inputs: RunInputs, rows: int, count: int = 1) -> Iterator[list[GradientFile]]:
    """Empty files, ``count`` of them, each for ``rows`` rows, valid inside the ``with`` block.

    Raises:
        MergingError: the folder for temporary files has no room for them.
    """
    total_bytes = count * rows * sum(inputs.numels) * inputs.dtype.itemsize
    with ExitStack() as files:
        if free_bytes(Path(tempfile.gettempdir())) < total_bytes:
            raise temporary_space_error("The gradients take", total_bytes)
        temporary = [files.enter_context(tempfile.TemporaryFile(prefix="mergescope-")) for _ in range(count)]
        yield [GradientFile(file, inputs, total_bytes) for file in temporary]


class _GradientTower:
    """A checkpoint's tower in the compute dtype; its loss is differentiated with respect to the stored tensors.

    Several stored tensors, such as query, key and value, may be parts of one tensor of the tower.
    """

    def __init__(self, checkpoint: Checkpoint, inputs: RunInputs) -> None:
        self._inputs = inputs
        self._encoder = Encoder.from_checkpoint(checkpoint, inputs.device, on_demand=True, fallback=inputs.pretrained)
        names = [name for parts in self._encoder.names.values() for name in parts]
        self._weights = {name: self._to_device(checkpoint.read(name)) for name in names}
        self._numel = sum(weight.numel() for weight in self._weights.values())

    def compute_statistic(
        self, kind: Gradients, name: str, task: TaskExemplars, seed: int, meter: Meter
    ) -> dict[str, Tensor]:
        """The mean over a task's examples of the squared or absolute gradient, {stored tensor: (*S) float64}."""
        check_fits(name, task, self._encoder.architecture, "exemplars")
        device = self._inputs.device
        budget = GRADIENT_BYTES_CPU if is_host(device) else limit_bytes(device, GRADIENT_BYTES_GPU)
        size = max(1, min(MAX_EXAMPLES, budget // (self._numel * self._inputs.dtype.itemsize)))
        targets = _label_sources(kind, name, task, seed)
        sums = {key: torch.zeros_like(to_float64(weight)) for key, weight in self._weights.items()}
        pairs = zip(task.images.split(size), targets.split(size), strict=True)
        passes = (partial(self._differentiate, kind, task, images, batch_targets) for images, batch_targets in pairs)
        nbytes = 2 * size * self._numel * self._inputs.dtype.itemsize
        # The fused kernels of attention do not support vmap. The choice of kernels is a setting of the whole process.
        with sdpa_kernel(SDPBackend.MATH), run_in_threads(passes, device, nbytes) as results:
            for gradients in results:
                count = len(next(iter(gradients.values())))  # of examples
                for key, total in sums.items():
                    gradient = gradients.pop(key)  # (n, *S), freed example batch by batch
                    values = gradient.abs_() if kind == Gradients.SENSITIVITY else gradient.square_()
                    total.add_((values[0] if len(values) == 1 else values.sum(dim=0)).to(total.device))
                meter.advance(count * self._numel, PHASE, name)
        for key, total in sums.items():
            if not torch.isfinite(total.div_(len(task.images)).sum()).cpu():
                # Reads all values; the error names every tensor with NaN or infinity.
                check_fit(self._inputs.pretrained, self._inputs.experts, values=True).raise_if_unfit()
                raise MergingError(f"The gradients of {name!r} in tensor {key!r} are not finite; check its head.")
        return sums

    def _differentiate(
        self, kind: Gradients, task: TaskExemplars, images: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """Every example's gradient, {stored tensor: (n, *S)}, of images (n, 3, h, w) and targets (n,)."""
        assert task.head is not None  # ensured by check_needs
        head, samples_label = self._to_device(task.head), kind == Gradients.FISHER

        def loss(weights: dict[str, Tensor], image: Tensor, target: Tensor) -> Tensor:
            stored = self._encoder.names.items()
            tensors = {name: assemble(name, parts, [weights[part] for part in parts]) for name, parts in stored}
            features = replace(self._encoder, tensors=tensors)(image[None])[0]
            log_shares = (task.logit_scale * (head @ nnf.normalize(features, dim=0))).log_softmax(dim=0)
            label = _sample_class(log_shares.detach(), target) if samples_label else target
            return -log_shares.gather(0, label[None])[0]

        if samples_label:
            targets = targets.to(self._inputs.dtype)
        gradients: dict[str, Tensor] = vmap(grad(loss), in_dims=(None, 0, 0))(
            self._weights, self._to_device(images), targets.to(self._inputs.device)
        )
        return gradients

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._inputs.device, self._inputs.dtype)


def _label_sources(kind: Gradients, name: str, task: TaskExemplars, seed: int) -> Tensor:
    """For every example (n,), its true label, or a number in [0, 1) that samples a label from the prediction."""
    if kind == Gradients.SENSITIVITY:
        assert task.labels is not None  # ensured by check_needs
        return task.labels.long()
    digest = hashlib.blake2b(json.dumps(["labels", seed, name]).encode(), digest_size=16).digest()
    return torch.from_numpy(np.random.default_rng(int.from_bytes(digest, "little")).random(len(task.images)))


def _sample_class(log_shares: Tensor, number: Tensor) -> Tensor:
    """The class, a scalar, that a number in [0, 1) samples from log-probabilities (classes,)."""
    return (log_shares.exp().cumsum(dim=0) <= number).sum().clamp(max=len(log_shares) - 1)
