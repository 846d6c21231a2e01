"""The losses and coefficients of a run that is still learning, read from its learning state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from torch import Tensor

from merging.base.errors import CheckpointError
from merging.models.formats.format_recognition import open_path

LOSSES, VALUE_PREFIX = "losses", "value."  # names in the state: losses (steps, K), coefficients (K,) by tensor


def read_losses(path: Path, experts: Sequence[str]) -> pd.DataFrame:
    """Every task's loss at every step so far, as columns step, expert, loss; empty before the file is first written."""
    rows = []
    for name, values in _read(path, experts, LOSSES):
        if name == LOSSES and values.ndim == 2:
            rows += [
                (step, *pair) for step, row in enumerate(values.tolist()) for pair in zip(experts, row, strict=True)
            ]
    return pd.DataFrame(rows, columns=["step", "expert", "loss"])


def read_coefficients(path: Path, experts: Sequence[str]) -> pd.DataFrame:
    """The coefficients so far, as columns expert, tensor, coefficient; empty for methods without one per tensor."""
    rows = []
    for name, values in _read(path, experts, VALUE_PREFIX):
        tensor = name.removeprefix(VALUE_PREFIX)
        if tensor and values.ndim == 1:  # the name is empty if all tensors share the coefficients
            rows += [(expert, tensor, value) for expert, value in zip(experts, values.tolist(), strict=True)]
    return pd.DataFrame(rows, columns=["expert", "tensor", "coefficient"])


def _read(path: Path, experts: Sequence[str], prefix: str) -> list[tuple[str, Tensor]]:
    """The tensors (..., K) whose names, without the part's name, start with ``prefix``."""
    try:
        file = open_path(path, path.name, path.name)
        names = {key: key.partition("/")[2] for key in file.infos}
        tensors = [(name, file.read(key)) for key, name in names.items() if name.startswith(prefix)]
    except (CheckpointError, OSError):  # not yet written, being replaced, or just removed
        return []
    return [(name, values) for name, values in tensors if values.shape[-1:] == (len(experts),)]
