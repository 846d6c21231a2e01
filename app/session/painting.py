"""A table of factors that is painted by hand: strokes over the cells of (expert, tensor), undone and redone.

Nothing here knows of widgets or of the address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Factors = NDArray[np.float64]  # (K, L)
Cells = NDArray[np.bool_]  # (K, L)
MOST_STROKES = 100


@dataclass(frozen=True)
class Stroke:
    """One gesture: the cells that it changed, as flat indices, with their factors before and after."""

    words: str
    cells: NDArray[np.intp]
    before: Factors
    after: Factors


@dataclass
class Painting:
    """The factors of K experts' L tensors as they are now, and the strokes that led there."""

    experts: tuple[str, ...]
    tensors: tuple[str, ...]
    factors: Factors
    strokes: list[Stroke] = field(default_factory=list)
    undone_strokes: list[Stroke] = field(default_factory=list)  # the next to redo last

    @classmethod
    def blank(cls, experts: Sequence[str], tensors: Sequence[str]) -> Painting:
        """Every factor is 1, so that nothing is changed."""
        return cls(tuple(experts), tuple(tensors), np.ones((len(experts), len(tensors))))

    def fits(self, experts: Sequence[str], tensors: Sequence[str]) -> bool:
        """Whether it is of these experts and tensors."""
        return self.experts == tuple(experts) and self.tensors == tuple(tensors)

    def paint(self, cells: Cells, factor: float, words: str) -> bool:
        """Give these cells (K, L) one factor; whether that changed anything."""
        return self.replace(np.where(cells, factor, self.factors), words)

    def replace(self, factors: Factors, words: str) -> bool:
        """Put other factors (K, L) in place of these, as one stroke; whether that changed anything."""
        changed = np.flatnonzero(factors != self.factors)
        if not len(changed):
            return False
        stroke = Stroke(words, changed, self.factors.flat[changed].copy(), factors.flat[changed].copy())
        self.strokes = [*self.strokes, stroke][-MOST_STROKES:]
        self.undone_strokes = []
        self._set(stroke.cells, stroke.after)
        return True

    def undo(self) -> None:
        """Take the last stroke back, if there is one."""
        if self.strokes:
            self.undone_strokes.append(stroke := self.strokes.pop())
            self._set(stroke.cells, stroke.before)

    def redo(self) -> None:
        """Paint the stroke again that was undone last, if there is one."""
        if self.undone_strokes:
            self.strokes.append(stroke := self.undone_strokes.pop())
            self._set(stroke.cells, stroke.after)

    def go_to(self, factors: Factors, words: str) -> None:
        """Undo or redo until the factors are these; factors that no stroke led to become a stroke."""
        for name, count in (("undo", len(self.strokes)), ("redo", len(self.undone_strokes))):
            trial = replace(self, strokes=[*self.strokes], undone_strokes=[*self.undone_strokes])
            for steps in range(count + 1):
                if np.array_equal(trial.factors, factors):
                    for _ in range(steps):
                        getattr(self, name)()
                    return
                getattr(trial, name)()
        self.replace(factors, words)

    def _set(self, cells: NDArray[np.intp], values: Factors) -> None:
        changed = self.factors.copy()  # what was drawn or cached from the old table stays as it was
        changed.flat[cells] = values
        self.factors = changed


# Which cells a gesture means


def select_names(names: Sequence[str], some: Sequence[str]) -> NDArray[np.bool_]:
    """Which of the names are among some of them; all if there are none."""
    if not some:
        return np.ones(len(names), bool)
    return np.isin(np.array(names, object), np.array(list(some), object))


def clicked_cells(experts: Sequence[str], facts: Mapping[str, Sequence[str]], mark: Mapping[str, str]) -> Cells:
    """The cells of a clicked mark, (K, L).

    ``mark`` has an expert, or none for all; and a tensor, a section or a part, or none for all. ``facts`` has those of
    every tensor by these names.
    """
    rows = select_names(experts, [mark["expert"]] if "expert" in mark else [])
    columns = np.ones(len(facts["tensor"]), bool)
    for kind in facts.keys() & mark.keys():
        columns &= select_names(facts[kind], [mark[kind]])
    return np.outer(rows, columns)


def boxed_cells(experts: int, order: Sequence[int], box: Mapping[str, Any]) -> Cells:
    """The cells that a rectangle touches, (K, L).

    ``order`` has the index of the tensor in every column of the chart, whose last row stands for all experts. ``box``
    has the ranges "x" and "y", in columns and rows, and the axes "xref" and "yref": on another axis than the map's,
    which is over names, the rectangle means whole rows or columns.
    """
    rows, columns = np.zeros(experts, bool), np.zeros(len(order), bool)
    first, last = _touched_range(box["y"], experts + 1) if box.get("yref", "y") == "y" else (0, experts)
    rows[first : last + 1] = True
    if last == experts:
        rows[:] = True
    first, last = _touched_range(box["x"], len(order)) if box.get("xref", "x") == "x" else (0, len(order) - 1)
    columns[np.asarray(order, int)[first : last + 1]] = True
    return np.outer(rows, columns)


def _touched_range(limits: Sequence[float], count: int) -> tuple[int, int]:
    """The first and the last of ``count`` cells of width 1, centered on whole numbers, that a range touches."""
    low, high = sorted(float(limit) for limit in limits)
    return max(int(np.floor(low + 0.5)), 0), min(int(np.ceil(high - 0.5)), count - 1)


# What painting can start from


def largest_tensors(scores: Factors, count: int) -> Cells:
    """The ``count`` tensors with the largest mean score (K, L), the same for all experts; ties go to the first."""
    kept = np.zeros(scores.shape, bool)
    kept[:, np.argsort(-np.nan_to_num(scores).mean(axis=0), kind="stable")[:count]] = True
    return kept


def random_tensors(numels: Sequence[int], scalars: int, experts: int, seed: int) -> Cells:
    """Whole tensors in random order, the same for all experts, with at most that many scalars together.

    One that would be too much is left out, and the next tried, so that the sum comes close.
    """
    order = np.random.default_rng(seed).permutation(len(numels))
    kept, total = np.zeros(len(numels), bool), 0
    for index in order:
        if total + numels[index] <= scalars:
            kept[index], total = True, total + numels[index]
    return np.tile(kept, (experts, 1))
