"""What is painted on: a run's experts and tensors, with their saliency, masks and sizes."""

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
    """A run's K experts and L tensors; ``masks`` is a table of the masks at ``ratio``, expert by expert."""

    run: Run
    masks: pd.DataFrame
    ratio: float
    own_mask: Cells | None  # (K, L), what the run itself kept; None if it pruned no tensors
    group: str  # the order of the columns, as charts call it
    squares: Factors | None = None  # (K, L), squared norms of the task vectors, where they are measured
    losses: Factors | None = None  # (K, L), what taking a cell out changes to first order, where it is measured

    @cached_property
    def experts(self) -> tuple[str, ...]:
        """The names of the experts."""
        return tuple(dict.fromkeys(self.masks["expert"]))

    @cached_property
    def facts(self) -> pd.DataFrame:
        """A row for each tensor: tensor, order, section, role, part, numel."""
        columns = ["tensor", "order", "section", "role", "part", "numel"]
        return self.masks[columns].iloc[: len(self.masks) // len(self.experts)]

    @cached_property
    def parameters(self) -> list[Parameter]:
        """The tensors, as rules take them."""
        return read_parameters(self.facts)

    @property
    def numels(self) -> NDArray[np.int64]:
        """Scalars of each tensor (L,)."""
        return self.facts["numel"].to_numpy()

    def column_matrix(self, column: str) -> NDArray[np.generic]:
        """One column of the masks as (K, L)."""
        return self.masks[column].to_numpy().reshape(len(self.experts), -1)

    def canvas_table(self, factors: Factors) -> pd.DataFrame:
        """The table that the canvas draws."""
        return self.masks[["expert", *self.facts.columns]].assign(factor=factors.reshape(-1))
