"""A computed fact: a number with its unit, interval, n, half and source; and its text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

PERCENT, POINTS = "%", "points"
FRACTION_UNITS = (PERCENT, POINTS)  # a value with one of these units is a fraction
NOT_MEASURED = "not measured here"


@dataclass(frozen=True)
class Cell:
    """One cell of a map, and whether the fact marks it."""

    row: str
    column: str
    holds: bool


@dataclass(frozen=True)
class Fact:
    """One fact: a value with its 95 % interval from ``low`` to ``high``; NaN is unknown.

    The three are fractions if ``unit`` is in ``FRACTION_UNITS``.

    ``digits`` is the number of digits after the point. ``n`` counts images unless ``counted_unit`` names something
    else; ``half`` is the split of the benchmark that contains them. A fact whose value is a name has it in ``name``,
    one whose value is a map of marks in ``cells``, whose rows and columns ``cell_axes`` names. If the
    value is unknown, ``missing`` explains what to measure, ``measure`` is the key of that measurement, and ``run`` the
    id of its run.

    ``draws`` (10,000,) are its values on resamples of its images, if they are known. Facts on the same images have them
    of the same resamples, so that their difference has the draws of the paired bootstrap.
    """

    value: float = math.nan
    unit: str = ""
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    half: str = ""
    seed: int | None = None
    source: str = ""
    missing: str = ""
    digits: int = 1
    counted_unit: str = ""
    name: str = ""
    cells: tuple[Cell, ...] = ()
    cell_axes: tuple[str, str] = ("Expert", "Tensor, in forward order")
    measure: str = ""
    run: str = ""
    draws: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)

    @property
    def scale(self) -> float:
        """The factor that converts a value to its unit."""
        return 100.0 if self.unit in FRACTION_UNITS else 1.0

    @property
    def displayed_value(self) -> float:
        """The value in its unit: 69.4 where the unit is "%"."""
        return self.value * self.scale

    @property
    def has_interval(self) -> bool:
        """Whether it has an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def text(self) -> str:
        """The fact in short: "69.4 %", its name, or "not measured here"."""
        if self.missing:
            return NOT_MEASURED
        if self.name:
            return self.name
        if not math.isfinite(self.value):
            return "undefined"
        return f"{self._format_number(self.value)}{f' {self.unit}' if self.unit else ''}"

    @property
    def long_text(self) -> str:
        """The fact with interval, n, half and seed: '69.4 % (67.3 to 71.6, n = 1,680, reporting half)'."""
        parts = []
        if self.has_interval and not self.missing:
            parts.append(f"{self._format_number(self.low)} to {self._format_number(self.high)}")
        if self.n and not self.missing:
            parts.append(f"n = {self.n:,}{f' {self.counted_unit}' if self.counted_unit else ''}")
        if self.half and not self.missing:
            parts.append(f"{self.half} half")
        if self.seed is not None and not self.missing:
            parts.append(f"seed {self.seed}")
        return f"{self.text} ({', '.join(parts)})" if parts else self.text

    def _format_number(self, value: float) -> str:
        written = f"{value * self.scale:,.{self.digits}f}"
        if float(written.replace(",", "")) == 0:
            written = written.lstrip("-")  # no −0.0
        sign = "+" if self.unit == POINTS and value * self.scale > 0 and float(written.replace(",", "")) else ""
        return sign + written.replace("-", "−")
