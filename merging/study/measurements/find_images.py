"""Images by what was measured of them: whose answer turns at a depth, that drift most, that restoring fixes.

And the ways from one to another: nearest to some, the next of a list, one at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.study.measurements.depths import SPLIT
from merging.study.one_image.logit_lens import parting_depth, settling_depth
from merging.study.one_image.restore import KINDS

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.measurements.depths import StoredDepths
    from merging.study.measurements.predictions import RunAnswers

TINY = 1e-12  # the length of a mean of features that cancel
COLUMNS = ("image", "task", "number", "class", "answer", "value")


class ByDepth(StrEnum):
    """What is asked of the stored depths of one run."""

    TURNS = "turns"  # the final answer stays from this depth
    PARTS = "parts"  # the answer differs from the reference's from this depth to the end
    DRIFT = "drift"  # the class token is farthest from the reference's at this depth
    MENDED = "mended"  # broken, and right with the reference's tokens put in before this block
    BROKEN = "broken"  # right with the reference and wrong here; value is the first depth whose class token fixes it


class ByAnswers(StrEnum):
    """What is asked of the stored predictions of two runs, or of several."""

    ONLY_OTHER = "only B right"  # A is wrong and B is right
    NOWHERE = "right nowhere"
    MARGIN = "margin lost"  # from B to A, the largest first


def find_by_depth(
    question: str, by_task: Mapping[str, StoredDepths], benchmark: Benchmark, *, depth: int = 0, tokens: str = KINDS[0]
) -> pd.DataFrame:
    """A row for each image that fits, those with the largest value first where values differ.

    Columns: image (TASK:SPLIT:N), task, number, class and answer (of the run), value: the drift, or a depth.

    Raises:
        TaskError: there is no such question, depth or kind of tokens.
    """
    asked_for = ByDepth(_find_choice(question, ByDepth))
    kind = KINDS.index(_find_choice(tokens, KINDS))
    depths = next((one.answers.shape[1] for one in by_task.values()), 1)
    if not 0 <= depth < depths:
        raise TaskError(f"There is no depth {depth}; depths are 0 (before block 0) to {depths - 1} (the output).")
    values: Mapping[ByDepth, Callable[[StoredDepths], NDArray[np.float64]]] = {
        ByDepth.TURNS: lambda one: _where_holds(settling_depth(one.answers.T) == depth, float(depth)),
        ByDepth.PARTS: lambda one: _where_holds(parting_depth(one.answers.T, one.reference.T) == depth, float(depth)),
        ByDepth.DRIFT: lambda one: one.drift[:, depth],
        ByDepth.MENDED: lambda one: _where_holds(one.restored_right[:, depth, kind] == 1, float(depth)),
        ByDepth.BROKEN: lambda one: _where_holds(
            one.restored_right[:, 0, kind] >= 0, _first_restoring(one.restored_right[:, :, kind])
        ),
    }
    numbers = {task: values[asked_for](one) for task, one in by_task.items()}
    said = {task: one.answers[:, -1] for task, one in by_task.items()}
    return _rows(numbers, said, {task: one.labels for task, one in by_task.items()}, benchmark)


def find_by_answers(question: str, runs: Mapping[str, Mapping[str, RunAnswers]], benchmark: Benchmark) -> pd.DataFrame:
    """A row for each image that fits, in the columns of ``find_by_depth``; value is the margin of A, or what it lost.

    ``runs`` are {run: {data set: its answers}}, A first and then B. A merge with several models that answer a data set
    is right where all of them are, and wrong where none is.

    Raises:
        TaskError: there is no such question, or it needs two runs.
    """
    asked_for = ByAnswers(_find_choice(question, ByAnswers))
    first, *others = runs.values()
    if not others and asked_for != ByAnswers.NOWHERE:
        raise TaskError(f"“{asked_for}” compares two runs; one was given.")
    numbers = {}
    for task, own in first.items():
        rest = [run[task] for run in others if task in run]
        margin = own.margin.mean(axis=0)
        if asked_for == ByAnswers.NOWHERE:
            right = np.concatenate([one.is_right for one in (own, *rest)])
            numbers[task] = _where_holds(right.sum(axis=0) == 0, margin)
        elif rest and asked_for == ByAnswers.MARGIN:
            numbers[task] = rest[0].margin.mean(axis=0) - margin
        elif rest:
            numbers[task] = _where_holds((own.is_right.sum(axis=0) == 0) & (rest[0].is_right.mean(axis=0) == 1), margin)
    said = {task: first[task].predicted[0] for task in numbers}
    return _rows(numbers, said, {task: first[task].labels for task in numbers}, benchmark)


def next_image(names: Sequence[str], image: str, step: int = 1) -> str:
    """The image after one in a list, the first after the last; the first if it is not in the list.

    Raises:
        TaskError: the list is empty.
    """
    if not names:
        raise TaskError("There is no image to go on to.")
    return names[(names.index(image) + step) % len(names)] if image in names else names[0]


def _find_choice(value: str, choices: type[StrEnum] | tuple[str, ...]) -> str:
    """The choice that is written; raises TaskError with the known ones."""
    known = [str(choice) for choice in choices]
    if value not in known:
        raise TaskError(f"There is no {value!r} to find images by. Known: {', '.join(known)}.")
    return value


def _where_holds(holds: NDArray[np.bool_], value: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """The value where something holds, NaN elsewhere."""
    return np.where(holds, value, np.nan)


def _first_restoring(mended: NDArray[np.int8]) -> NDArray[np.float64]:
    """The first depth from which tokens fix it before every later block, too, of (n, D); before the output always."""
    wrong = mended != 1
    last = wrong.shape[1] - 1 - wrong[:, ::-1].argmax(axis=1)
    return np.where(wrong.any(axis=1), last + 1.0, 0.0)


def _rows(
    numbers: Mapping[str, NDArray[np.float64]],
    said: Mapping[str, NDArray[np.int64]],
    labels: Mapping[str, NDArray[np.int64]],
    benchmark: Benchmark,
) -> pd.DataFrame:
    """The images with a number, the largest first; equal ones in the order of the benchmark."""
    frames = [pd.DataFrame(columns=list(COLUMNS))]
    for task, values in numbers.items():
        at = np.flatnonzero(np.isfinite(values))
        names = np.array(benchmark.task(task).class_names, dtype=object)
        columns = (
            [f"{task}:{SPLIT}:{number}" for number in at], task, at, names[labels[task][at]], names[said[task][at]],
            values[at],
        )  # fmt: skip
        frames.append(pd.DataFrame(dict(zip(COLUMNS, columns, strict=True))))
    table = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    return table.sort_values("value", ascending=False, kind="stable", ignore_index=True)
