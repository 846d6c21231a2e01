"""A table of factors that is painted by hand: strokes over the cells of (expert, tensor), undone and redone.

This module knows neither widgets nor the address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Factors = NDArray[np.float64]  # (K, L)
Cells = NDArray[np.bool_]  # (K, L)
MAX_STROKES = 100


@dataclass(frozen=True)
class Stroke:
    """One gesture: the cells that it changed, as flat indices, with their factors before and after."""

    words: str
    cells: NDArray[np.intp]
    before: Factors
    after: Factors


@dataclass
class Painting:
    """The current factors (K, L) of K experts and L tensors, and the strokes that led to them."""

    experts: tuple[str, ...]
    tensors: tuple[str, ...]
    factors: Factors
    strokes: list[Stroke] = field(default_factory=list)
    undone_strokes: list[Stroke] = field(default_factory=list)  # the last one is redone first

    @classmethod
    def blank(cls, experts: Sequence[str], tensors: Sequence[str]) -> Painting:
        """A painting in which every factor (K, L) is 1, which changes nothing."""
        return cls(tuple(experts), tuple(tensors), np.ones((len(experts), len(tensors))))

    def fits(self, experts: Sequence[str], tensors: Sequence[str]) -> bool:
        """Whether the painting has these experts and tensors."""
        return self.experts == tuple(experts) and self.tensors == tuple(tensors)

    def paint(self, cells: Cells, factor: float, words: str) -> bool:
        """Set one factor in the cells (K, L) that are True; returns whether anything changed."""
        return self.replace(np.where(cells, factor, self.factors), words)

    def replace(self, factors: Factors, words: str) -> bool:
        """Replace all factors (K, L) in one stroke; returns whether anything changed."""
        changed = np.flatnonzero(factors != self.factors)
        if not len(changed):
            return False
        stroke = Stroke(words, changed, self.factors.flat[changed].copy(), factors.flat[changed].copy())
        self.strokes = [*self.strokes, stroke][-MAX_STROKES:]
        self.undone_strokes = []
        self._set(stroke.cells, stroke.after)
        return True

    def undo(self) -> None:
        """Undo the last stroke, if there is one."""
        if self.strokes:
            self.undone_strokes.append(stroke := self.strokes.pop())
            self._set(stroke.cells, stroke.before)

    def redo(self) -> None:
        """Redo the stroke that was undone last, if there is one."""
        if self.undone_strokes:
            self.strokes.append(stroke := self.undone_strokes.pop())
            self._set(stroke.cells, stroke.after)

    def go_to(self, factors: Factors, words: str) -> None:
        """Undo or redo until the factors (K, L) are these; if no stroke leads to them, they become a new stroke."""
        for name, count in (("undo", len(self.strokes)), ("redo", len(self.undone_strokes))):
            copy = replace(self, strokes=[*self.strokes], undone_strokes=[*self.undone_strokes])
            for steps in range(count + 1):
                if np.array_equal(copy.factors, factors):
                    for _ in range(steps):
                        getattr(self, name)()
                    return
                getattr(copy, name)()
        self.replace(factors, words)

    def _set(self, cells: NDArray[np.intp], values: Factors) -> None:
        changed = self.factors.copy()  # charts and caches made from the old table stay unchanged
        changed.flat[cells] = values
        self.factors = changed


# Cells of a gesture


def select_names(names: Sequence[str], selection: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each of the names is in ``selection``, (n,) bool; all True if ``selection`` is empty."""
    if not selection:
        return np.ones(len(names), bool)
    return np.isin(np.array(names, object), np.array(list(selection), object))


def clicked_cells(experts: Sequence[str], facts: Mapping[str, Sequence[str]], mark: Mapping[str, str]) -> Cells:
    """The cells of a clicked mark, (K, L).

    ``mark`` has an expert, or none for all; and a tensor, a section or a part, or none for all. ``facts`` maps these
    three words to a value for every tensor.
    """
    rows = select_names(experts, [mark["expert"]] if "expert" in mark else [])
    columns = np.ones(len(facts["tensor"]), bool)
    for kind in facts.keys() & mark.keys():
        columns &= select_names(facts[kind], [mark[kind]])
    return np.outer(rows, columns)


def boxed_cells(expert_count: int, order: Sequence[int], box: Mapping[str, Any]) -> Cells:
    """The cells that a rectangle touches, (K, L) bool.

    ``order`` has the index of the tensor in every column of the chart; the chart's last row is for all experts. ``box``
    has the ranges "x" and "y", in columns and rows, and the axes "xref" and "yref". On an axis of names beside the map,
    the rectangle means whole rows or columns.
    """
    rows, columns = np.zeros(expert_count, bool), np.zeros(len(order), bool)
    first, last = _touched_range(box["y"], expert_count + 1) if box.get("yref", "y") == "y" else (0, expert_count)
    rows[first : last + 1] = True
    if last == expert_count:
        rows[:] = True
    first, last = _touched_range(box["x"], len(order)) if box.get("xref", "x") == "x" else (0, len(order) - 1)
    columns[np.asarray(order, int)[first : last + 1]] = True
    return np.outer(rows, columns)


def _touched_range(limits: Sequence[float], count: int) -> tuple[int, int]:
    """The first and the last of ``count`` cells of width 1, centered on whole numbers, that a range touches."""
    low, high = sorted(float(limit) for limit in limits)
    return max(int(np.floor(low + 0.5)), 0), min(int(np.ceil(high - 0.5)), count - 1)


# Masks to start from


def largest_tensors(scores: Factors, count: int) -> Cells:
    """The cells (K, L) of the ``count`` tensors whose ``scores`` (K, L) have the largest mean.

    Of equal means the first tensor counts as larger.
    """
    kept = np.zeros(scores.shape, bool)
    kept[:, np.argsort(-np.nan_to_num(scores).mean(axis=0), kind="stable")[:count]] = True
    return kept


def random_tensors(numels: Sequence[int], scalars: int, expert_count: int, seed: int) -> Cells:
    """The cells (K, L) of random tensors, the same for all experts, with at most ``scalars`` scalars together.

    A tensor that is too large for the remainder is skipped, so that the sum comes close to ``scalars``.
    """
    order = np.random.default_rng(seed).permutation(len(numels))
    kept, total = np.zeros(len(numels), bool), 0
    for index in order:
        if total + numels[index] <= scalars:
            kept[index], total = True, total + numels[index]
    return np.tile(kept, (expert_count, 1))
