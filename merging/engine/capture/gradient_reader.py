"""Gradients that the caller passes in memory or as files, in place of gradients on exemplars."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from merging.base.errors import NeedsError
from merging.base.text import first_few, plural
from merging.engine.capture.data_files import GradientMeansFile, open_gradients
from merging.methods.slot import Gradients

# {expert: {tensor: means (*S) over examples of squared or absolute gradients}, or a file of them}.
GradientsOf = Mapping[str, Mapping[str, Tensor] | str | os.PathLike[str]]


class FileGradients:
    """One statistic of every expert's gradients (K, *S), as the caller passes it.

    ``stored`` is {expert: {tensor: its name in the expert's own file}} where names differ.

    Raises:
        NeedsError: an expert has no gradients, or they are of another kind, lack a tensor, or have another shape.
    """

    def __init__(
        self,
        gradients: GradientsOf,
        kind: Gradients,
        experts: Iterable[str],
        shapes: Mapping[str, tuple[int, ...]],
        device: torch.device,
        dtype: torch.dtype,
        stored: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._device, self._dtype = device, dtype
        names = tuple(experts)
        if not isinstance(gradients, Mapping):
            raise NeedsError("Gradients are a mapping {expert: a result of merging.gradient_means, or its file}.")
        if missing := [name for name in names if name not in gradients]:
            raise NeedsError(f"There are no gradients for {first_few(missing)}; pass them for every expert.")
        self._means = [open_gradients(gradients[name], name, kind) for name in names]
        self._stored_names = [(stored or {}).get(name, {}) for name in names]
        for name, means, stored_names in zip(names, self._means, self._stored_names, strict=True):
            if lacking := [tensor for tensor in shapes if _find_name(means, tensor, stored_names) not in means]:
                raise NeedsError(
                    f"The gradients of {name!r} lack {len(lacking)} of {plural(len(shapes), 'tensor')}: "
                    f"{first_few(lacking)}. Pass like=, the expert's own file, to merging.gradient_means."
                )
            for tensor, shape in shapes.items():
                _check_shape(name, means, _find_name(means, tensor, stored_names), shape)

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """The scalars [start, stop) of a tensor, (K, stop - start)."""
        pairs = zip(self._means, self._stored_names, strict=True)
        rows = [_read_flat(means, _find_name(means, name, stored_names), start, stop) for means, stored_names in pairs]
        return torch.stack([row.to(self._device, self._dtype) for row in rows])


def _find_name(means: Mapping[str, Tensor], name: str, stored_names: Mapping[str, str]) -> str:
    """A tensor's name among the gradients: its name in the expert's own file, or else in the pretrained model's."""
    stored_name = stored_names.get(name, name)
    return stored_name if stored_name in means else name


def _check_shape(expert: str, means: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
    actual = means.shape(name) if isinstance(means, GradientMeansFile) else getattr(means[name], "shape", ())
    if tuple(actual) != tuple(shape):
        raise NeedsError(
            f"The gradients of {expert!r} have {name!r} with the shape {tuple(actual)}; {tuple(shape)} is needed."
        )


def _read_flat(means: Mapping[str, Tensor], name: str, start: int, stop: int) -> Tensor:
    """The scalars [start, stop) of a tensor, (stop - start,)."""
    if isinstance(means, GradientMeansFile):
        return means.read_flat(name, start, stop)
    return means[name].detach().reshape(-1)[start:stop]
