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

EVERY = 10  # steps between two rows of the history
FORWARD, PROJECT, NONE = "forward", "project", "none"  # how coefficients are bounded to [0, 1]
TASK = ""  # the name of coefficients that all tensors share


class Coefficients:
    """Coefficients (K,) by tensor, or under ``TASK`` for all tensors, in float64.

    ``raw`` holds the learned values. With ``clamp`` "forward", the model uses them clipped to [0, 1], and values
    outside have no gradient; with "project", ``raw`` itself is clipped after every step; with "none" it is unbounded.
    ``init`` is in [0, 1], so zero steps equal task arithmetic at ``init`` for every clamp.
    """

    def __init__(
        self, experts: Sequence[str], live: Sequence[Parameter], init: float, clamp: str, *, by_task: bool
    ) -> None:
        self._experts, self._live, self._clamp, self._task = tuple(experts), tuple(live), clamp, by_task
        names = [TASK] if by_task else [parameter.name for parameter in live]
        self.raw = {name: torch.full((len(experts),), init, dtype=torch.float64) for name in names}
        self._losses: list[Tensor] = []  # (K,) a step
        self._spread: list[Tensor] = []  # (4, K) a step: mean, minimum, maximum, share at zero
        self._history: list[Tensor] = []  # (K, names), every ``EVERY`` steps

    def model_values(self, name: str) -> Tensor:
        """The coefficients (K,) that the model uses for a tensor."""
        raw = self.raw[TASK if self._task else name]
        return raw.clamp(0, 1) if self._clamp == FORWARD else raw

    def move(self, adam: Adam, name: str, gradient: Tensor) -> None:
        """Move one tensor's coefficients by Adam, for the gradient (K,) by the coefficients that the model uses."""
        raw = self.raw[name]
        if self._clamp == FORWARD:
            gradient = gradient * ((raw >= 0) & (raw <= 1))
        adam.move(name, gradient)
        if self._clamp == PROJECT:
            raw.clamp_(0, 1)

    def all_model_values(self) -> list[Tensor]:
        """All coefficients that the model uses, (K,) per tensor."""
        return [self.model_values(name) for name in self.raw]

    def note(self, losses: Sequence[float]) -> None:
        """Add a step to the history: every task's loss, and the coefficients of the model that had these losses."""
        now = self._stacked_values()
        if len(self._losses) % EVERY == 0:
            self._history.append(now)
        self._losses.append(torch.tensor(losses, dtype=torch.float64))
        if now.shape[1]:
            zero = (now <= 0).to(now).mean(dim=1)
            self._spread.append(torch.stack([now.mean(dim=1), now.amin(dim=1), now.amax(dim=1), zero]))
        else:
            self._spread.append(torch.full((4, len(now)), torch.nan, dtype=torch.float64))

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
        """The tables ``coefficients`` (for the merge), ``coefficient_steps`` (before shrinking) and ``learning``."""
        import pandas as pd

        steps = len(self._losses)
        shown = [*range(0, steps, EVERY), steps]
        history = [self._table(values).assign(step=step)
                   for step, values in zip(shown, [*self._history, self._stacked_values()], strict=True)]  # fmt: skip
        final = self._table(shrink * self._stacked_values()).assign(pruned=False)
        dropped = [] if self._task else [p for p in parameters if p not in set(self._live)]
        if dropped:
            rows = [(e, p.name, p.order, p.part, float("nan"), True) for e in self._experts for p in dropped]
            final = pd.concat([final, pd.DataFrame(rows, columns=list(final))], ignore_index=True)
            ranks = {expert: k for k, expert in enumerate(self._experts)}
            final = final.sort_values(["expert", "order"], key=lambda c: c.map(ranks) if c.name == "expert" else c)
        return {
            "coefficients": final.reset_index(drop=True),
            "coefficient_steps": pd.concat(history, ignore_index=True)[["step", *final.columns[:-1]]],
            "learning": self._learning(),
        }

    def _stacked_values(self) -> Tensor:
        """All coefficients that the model uses (K, names)."""
        columns = self.all_model_values()
        return torch.stack(columns, dim=1) if columns else torch.zeros(len(self._experts), 0, dtype=torch.float64)

    def _table(self, values: Tensor) -> pd.DataFrame:
        import pandas as pd

        tensors = [(TASK, 0, "")] if self._task else [(p.name, p.order, p.part) for p in self._live]
        rows = [
            (expert, *tensor, value)
            for expert, row in zip(self._experts, values.tolist(), strict=True)
            for tensor, value in zip(tensors, row, strict=True)
        ]
        return pd.DataFrame(rows, columns=["expert", "tensor", "order", "part", "coefficient"])

    def _learning(self) -> pd.DataFrame:
        import pandas as pd

        rows = [
            (step, expert, *numbers)
            for step, (losses, spread) in enumerate(zip(self._losses, self._spread, strict=True))
            for expert, *numbers in zip(self._experts, losses.tolist(), *spread.tolist(), strict=True)
        ]
        columns = ["step", "expert", "loss", "coefficient_mean", "coefficient_min", "coefficient_max", "at_zero"]
        return pd.DataFrame(rows, columns=columns)
