"""Learned coefficients of task vectors: per tensor or per task, bounded, with their history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from merging.methods.learning import Adam
from merging.models.families import Parameter

if TYPE_CHECKING:
    import pandas as pd

HISTORY_INTERVAL = 10  # steps between two rows of the history
FORWARD, PROJECT, NONE = "forward", "project", "none"  # how coefficients are bounded to [0, 1]
TASK = ""  # the name of coefficients that all tensors share


class Coefficients:
    """Coefficients (K,) by tensor, or under ``TASK`` for all tensors, in float64.

    ``raw`` holds the learned values. With ``clamp`` "forward", the model uses them clipped to [0, 1], and values
    outside have no gradient; with "project", ``raw`` itself is clipped after every step; with "none" it is unbounded.
    ``init`` is in [0, 1], so zero steps equal task arithmetic at ``init`` for every clamp. ``live`` are the tensors
    that no edit drops for every expert; the others have no coefficients, and are ``pruned`` in the table.
    """

    def __init__(
        self, experts: Sequence[str], live: Sequence[Parameter], init: float, clamp: str, *, by_task: bool
    ) -> None:
        self._experts, self._live, self._clamp, self._by_task = tuple(experts), tuple(live), clamp, by_task
        names = [TASK] if by_task else [parameter.name for parameter in live]
        self.raw = {name: torch.full((len(experts),), init, dtype=torch.float64) for name in names}
        self._losses: list[Tensor] = []  # (K,) per step
        self._spread: list[Tensor] = []  # (4, K) per step: mean, minimum, maximum, share at zero
        self._history: list[Tensor] = []  # (K, names), every ``HISTORY_INTERVAL`` steps

    def model_values(self, name: str) -> Tensor:
        """The coefficients (K,) that the model uses for a tensor."""
        raw = self.raw[TASK if self._by_task else name]
        return raw.clamp(0, 1) if self._clamp == FORWARD else raw

    def move(self, adam: Adam, name: str, gradient: Tensor) -> None:
        """Move one tensor's coefficients by Adam; ``gradient`` (K,) is by the coefficients that the model uses."""
        raw = self.raw[name]
        if self._clamp == FORWARD:
            gradient = gradient * ((raw >= 0) & (raw <= 1))
        adam.move(name, gradient)
        if self._clamp == PROJECT:
            raw.clamp_(0, 1)

    def all_model_values(self) -> list[Tensor]:
        """All coefficients that the model uses, (K,) per tensor."""
        return [self.model_values(name) for name in self.raw]

    def record_step(self, losses: Sequence[float]) -> None:
        """Add a step to the history: every task's loss, and the coefficients of the model that had these losses."""
        values = self._stacked_values()
        if len(self._losses) % HISTORY_INTERVAL == 0:
            self._history.append(values)
        self._losses.append(torch.tensor(losses, dtype=torch.float64))
        if values.shape[1]:
            share_at_zero = (values <= 0).to(values).mean(dim=1)
            statistics = values.mean(dim=1), values.amin(dim=1), values.amax(dim=1), share_at_zero
            self._spread.append(torch.stack(statistics))
        else:  # no live tensor
            self._spread.append(torch.full((4, len(values)), torch.nan, dtype=torch.float64))

    def state(self) -> dict[str, Tensor]:
        """The history as named tensors, for a file: losses (n, K), spread (n, 4, K), history (rows, K, names)."""
        parts = {"losses": self._losses, "spread": self._spread, "history": self._history}
        return {name: torch.stack(rows) for name, rows in parts.items() if rows}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the history of tensors that ``state`` returned, of the same shapes."""
        self._losses, self._spread, self._history = (
            list(state[name].unbind()) if name in state else [] for name in ("losses", "spread", "history")
        )

    def merge_values(self, shrink: float) -> dict[str, tuple[float, ...]]:
        """Every live tensor's coefficients for the merge, multiplied by ``shrink``."""
        return {
            parameter.name: tuple((shrink * self.model_values(parameter.name)).tolist()) for parameter in self._live
        }

    def tables(self, parameters: Sequence[Parameter], shrink: float) -> dict[str, pd.DataFrame]:
        """The tables of the learning, by name.

        ``coefficients`` has those of the merge, ``coefficient_steps`` their history without ``shrink``, ``learning``
        every step's losses and spread of coefficients.
        """
        import pandas as pd

        steps = len(self._losses)
        history_steps = [*range(0, steps, HISTORY_INTERVAL), steps]
        recorded = [*self._history, self._stacked_values()]
        history = [
            self._build_table(values).assign(step=step) for step, values in zip(history_steps, recorded, strict=True)
        ]
        final = self._build_table(shrink * self._stacked_values()).assign(pruned=False)
        dropped = [] if self._by_task else [p for p in parameters if p not in set(self._live)]
        if dropped:
            rows = [(expert, p.name, p.order, p.part, float("nan"), True) for expert in self._experts for p in dropped]
            final = pd.concat([final, pd.DataFrame(rows, columns=list(final))], ignore_index=True)
            ranks = {expert: k for k, expert in enumerate(self._experts)}
            final = final.sort_values(
                ["expert", "order"], key=lambda column: column.map(ranks) if column.name == "expert" else column
            )
        # The history has all columns but the last, ``pruned``.
        return {
            "coefficients": final.reset_index(drop=True),
            "coefficient_steps": pd.concat(history, ignore_index=True)[["step", *final.columns[:-1]]],
            "learning": self._build_learning_table(),
        }

    def _stacked_values(self) -> Tensor:
        """All coefficients that the model uses (K, names)."""
        columns = self.all_model_values()
        return torch.stack(columns, dim=1) if columns else torch.zeros(len(self._experts), 0, dtype=torch.float64)

    def _build_table(self, values: Tensor) -> pd.DataFrame:
        """A table with a row per expert and tensor, of coefficients (K, names)."""
        import pandas as pd

        tensors = [(TASK, 0, "")] if self._by_task else [(p.name, p.order, p.part) for p in self._live]
        rows = [
            (expert, *tensor, value)
            for expert, row in zip(self._experts, values.tolist(), strict=True)
            for tensor, value in zip(tensors, row, strict=True)
        ]
        return pd.DataFrame(rows, columns=["expert", "tensor", "order", "part", "coefficient"])

    def _build_learning_table(self) -> pd.DataFrame:
        """A table with a row per step and expert."""
        import pandas as pd

        rows = [
            (step, expert, *numbers)
            for step, (losses, spread) in enumerate(zip(self._losses, self._spread, strict=True))
            for expert, *numbers in zip(self._experts, losses.tolist(), *spread.tolist(), strict=True)
        ]
        columns = ["step", "expert", "loss", "coefficient_mean", "coefficient_min", "coefficient_max", "at_zero"]
        return pd.DataFrame(rows, columns=columns)
