"""A computed fact: a number with its unit, interval, n, half and source, and how it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

PERCENT, POINTS = "%", "points"
SHARES = (PERCENT, POINTS)  # units of values that are fractions
NOT_MEASURED = "not measured here"


@dataclass(frozen=True)
class Cell:
    """One cell of a map, and whether what the fact says holds in it."""

    row: str
    column: str
    holds: bool


@dataclass(frozen=True)
class Fact:
    """One fact. ``value``, ``low`` and ``high`` (95 %) are fractions where ``unit`` is in ``SHARES``; NaN is unknown.

    ``digits`` are those after the point. ``n`` counts images unless ``counted`` names something else; ``half`` is the
    split that they are of. ``name`` is the value where it is a name, ``cells`` where it is a map of marks. ``missing``
    says in words what has to be measured before the value is known, and ``measure`` is the key of that measurement,
    ``run`` the id of the run that it is of.
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
    measure: str = ""
    run: str = ""

    @property
    def scale(self) -> float:
        """By what a value is multiplied to be in its unit."""
        return 100.0 if self.unit in SHARES else 1.0

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
        """'69.4 %', the name, or that it is not measured here."""
        if self.missing:
            return NOT_MEASURED
        if self.name:
            return self.name
        if not math.isfinite(self.value):
            return "undefined"
        return f"{self._number(self.value)}{f' {self.unit}' if self.unit else ''}"

    @property
    def long_text(self) -> str:
        """'69.4 % (67.3 to 71.6, n = 1,680, reporting half)'."""
        parts = []
        if self.has_interval and not self.missing:
            parts.append(f"{self._number(self.low)} to {self._number(self.high)}")
        if self.n and not self.missing:
            parts.append(f"n = {self.n:,}{f' {self.counted_unit}' if self.counted_unit else ''}")
        if self.half and not self.missing:
            parts.append(f"{self.half} half")
        if self.seed is not None and not self.missing:
            parts.append(f"seed {self.seed}")
        return f"{self.text} ({', '.join(parts)})" if parts else self.text

    def _number(self, value: float) -> str:
        written = f"{value * self.scale:,.{self.digits}f}"
        if float(written.replace(",", "")) == 0:
            written = written.lstrip("-")  # no −0.0
        sign = "+" if self.unit == POINTS and value * self.scale > 0 and float(written.replace(",", "")) else ""
        return sign + written.replace("-", "−")
