"""What a run that is learning has kept so far, for those who watch it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from torch import Tensor

from merging.base.errors import CheckpointError
from merging.models.formats.format_recognition import open_path

LOSSES, VALUE = "losses", "value."  # names of what is kept: losses (steps, K), coefficients (K,) by tensor


def read_losses(path: Path, experts: Sequence[str]) -> pd.DataFrame:
    """Every task's loss at every step so far: step, expert, loss; no rows before the file is first written."""
    rows = []
    for name, values in _read(path, experts, LOSSES):
        if name == LOSSES and values.ndim == 2:
            rows += [
                (step, *pair) for step, row in enumerate(values.tolist()) for pair in zip(experts, row, strict=True)
            ]
    return pd.DataFrame(rows, columns=["step", "expert", "loss"])


def read_coefficients(path: Path, experts: Sequence[str]) -> pd.DataFrame:
    """The coefficients so far: expert, tensor, coefficient; no rows for a method that has none for single tensors."""
    rows = []
    for name, values in _read(path, experts, VALUE):
        tensor = name.removeprefix(VALUE)
        if tensor and values.ndim == 1:
            rows += [(expert, tensor, value) for expert, value in zip(experts, values.tolist(), strict=True)]
    return pd.DataFrame(rows, columns=["expert", "tensor", "coefficient"])


def _read(path: Path, experts: Sequence[str], beginning: str) -> list[tuple[str, Tensor]]:
    """What the file has under names that begin so, without the part that kept it; a number for each expert is last."""
    try:
        opened = open_path(path, path.name, path.name)
        names = {key: key.partition("/")[2] for key in opened.infos}
        read = [(name, opened.read(key)) for key, name in names.items() if name.startswith(beginning)]
    except (CheckpointError, OSError):  # not there yet, being replaced, or just removed
        return []
    return [(name, values) for name, values in read if values.shape[-1:] == (len(experts),)]
