"""The sheet under a painting: a run's experts and tensors, with their saliency, masks and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from app.session.painting import Cells, Factors
from merging.models.families import Parameter
from merging.study.runs.run import Run, read_parameters

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PaintSheet:
    """A run's experts and tensors; ``masks`` is a table of the masks at ``ratio``, expert by expert."""

    run: Run
    masks: pd.DataFrame
    ratio: float
    own_mask: Cells | None  # (experts, tensors), the cells that the run kept; None if it pruned no tensors
    group: str  # the name that charts give to the order of the columns
    squares: Factors | None = None  # (experts, tensors), squared norms of the task vectors, if measured
    losses: Factors | None = None  # (experts, tensors), first-order change if the cell is removed, if measured

    @cached_property
    def experts(self) -> tuple[str, ...]:
        """The names of the experts, (experts,)."""
        return tuple(dict.fromkeys(self.masks["expert"]))

    @cached_property
    def facts(self) -> pd.DataFrame:
        """One row for each tensor: tensor, order, section, role, part, numel."""
        columns = ["tensor", "order", "section", "role", "part", "numel"]
        return self.masks[columns].iloc[: len(self.masks) // len(self.experts)]

    @cached_property
    def parameters(self) -> list[Parameter]:
        """The tensors as parameters for rules, (tensors,)."""
        return read_parameters(self.facts)

    @property
    def numels(self) -> NDArray[np.int64]:
        """The number of scalars of each tensor, (tensors,) int64."""
        return self.facts["numel"].to_numpy()

    def column_matrix(self, column: str) -> NDArray[np.generic]:
        """One column of the masks as a matrix (experts, tensors)."""
        return self.masks[column].to_numpy().reshape(len(self.experts), -1)

    def canvas_table(self, factors: Factors) -> pd.DataFrame:
        """The table of the canvas chart, with ``factors`` (experts, tensors) as a column."""
        return self.masks[["expert", *self.facts.columns]].assign(factor=factors.reshape(-1))
