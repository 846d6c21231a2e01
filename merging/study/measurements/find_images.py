"""Finds images by their measurements: those whose answer settles at a depth, that drift most, that restoring fixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.study.measurements.depths import NOT_BROKEN, SPLIT
from merging.study.one_image.logit_lens import parting_depth, settling_depth
from merging.study.one_image.restore import TOKEN_KINDS

if TYPE_CHECKING:
    from merging.images.benchmarks.answers import SplitAnswers
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.measurements.depths import StoredDepths


COLUMNS = ("image", "task", "number", "class", "answer", "value")


class ByDepth(StrEnum):
    """Questions about the stored depths of one run; their words are part of addresses and commands, so they stay."""

    SETTLES = "turns"  # the model gives its final answer from this depth on
    PARTS_FROM_REFERENCE = "parts"  # from this depth on, the answers of the model and of the reference differ
    DRIFT = "drift"  # the distance of the class tokens of model and reference at this depth
    RESTORED = "mended"  # a broken image that is right if the reference's tokens replace the run's before this block
    # Only the reference is right; value is the depth from which its tokens, put before any later block, fix the run.
    BROKEN = "broken"


class ByAnswers(StrEnum):
    """Questions about the stored answers of two or more runs."""

    ONLY_SECOND_RIGHT = "only B right"  # A is wrong and B is right
    ALL_WRONG = "right nowhere"  # every run is wrong
    MARGIN_LOST = "margin lost"  # the margin of B minus that of A, the largest first


def find_by_depth(
    question: str,
    by_task: Mapping[str, StoredDepths],
    benchmark: Benchmark,
    *,
    depth: int = 0,
    tokens: str = TOKEN_KINDS[0],
) -> pd.DataFrame:
    """A row for each matching image, largest value first.

    Columns: image (TASK:SPLIT:N), task, number, class and answer (of the run), value (the drift, or a depth).

    Raises:
        TaskError: there is no such question, depth or kind of tokens.
    """
    parsed_question = ByDepth(_find_choice(question, ByDepth))
    kind_index = TOKEN_KINDS.index(_find_choice(tokens, TOKEN_KINDS))
    depth_count = next((stored.answers.shape[1] for stored in by_task.values()), 1)
    if not 0 <= depth < depth_count:
        raise TaskError(f"There is no depth {depth}; depths are 0 (before block 0) to {depth_count - 1} (the output).")
    find_values: Mapping[ByDepth, Callable[[StoredDepths], NDArray[np.float64]]] = {
        ByDepth.SETTLES: lambda stored: _mask_values(settling_depth(stored.answers.T) == depth, float(depth)),
        ByDepth.PARTS_FROM_REFERENCE: lambda stored: _mask_values(
            parting_depth(stored.answers.T, stored.reference.T) == depth, float(depth)
        ),
        ByDepth.DRIFT: lambda stored: stored.drift[:, depth],
        ByDepth.RESTORED: lambda stored: _mask_values(stored.restored_right[:, depth, kind_index] == 1, float(depth)),
        ByDepth.BROKEN: lambda stored: _mask_values(
            stored.restored_right[:, 0, kind_index] != NOT_BROKEN,
            _find_restoring_depth(stored.restored_right[:, :, kind_index]),
        ),
    }
    values = {task: find_values[parsed_question](stored) for task, stored in by_task.items()}
    answers = {task: stored.answers[:, -1] for task, stored in by_task.items()}
    return _build_rows(values, answers, {task: stored.labels for task, stored in by_task.items()}, benchmark)


def find_by_answers(
    question: str, runs: Mapping[str, Mapping[str, SplitAnswers]], benchmark: Benchmark
) -> pd.DataFrame:
    """A row for each matching image, with the columns of ``find_by_depth``; value is A's margin, or its loss of margin.

    ``runs`` are {run: {data set: its answers}}, A first and then B. If several models of a merge answer a data set, the
    merge is right on an image if all of them are, and wrong if none is.

    Raises:
        TaskError: there is no such question, or it needs two runs.
    """
    parsed_question = ByAnswers(_find_choice(question, ByAnswers))
    run_a, *other_runs = runs.values()
    if not other_runs and parsed_question != ByAnswers.ALL_WRONG:
        raise TaskError(f"“{parsed_question}” compares two runs, but there is only one.")
    values = {}
    for task, answers_a in run_a.items():
        answers_b = [run[task] for run in other_runs if task in run]
        margin = answers_a.margin.mean(axis=0)
        if parsed_question == ByAnswers.ALL_WRONG:
            is_right = np.concatenate([run_answers.is_right for run_answers in (answers_a, *answers_b)])
            values[task] = _mask_values(is_right.sum(axis=0) == 0, margin)
        elif answers_b and parsed_question == ByAnswers.MARGIN_LOST:
            values[task] = answers_b[0].margin.mean(axis=0) - margin
        elif answers_b:
            only_b = (answers_a.is_right.sum(axis=0) == 0) & (answers_b[0].is_right.mean(axis=0) == 1)
            values[task] = _mask_values(only_b, margin)
    answers = {task: run_a[task].predicted[0] for task in values}
    return _build_rows(values, answers, {task: run_a[task].labels for task in values}, benchmark)


def next_image(names: Sequence[str], image: str, step: int = 1) -> str:
    """The name ``step`` positions after ``image`` in a circular list; the first name if ``image`` is not in the list.

    Raises:
        TaskError: the list is empty.
    """
    if not names:
        raise TaskError("There is no next image, because the list is empty.")
    return names[(names.index(image) + step) % len(names)] if image in names else names[0]


def _find_choice(value: str, choices: type[StrEnum] | tuple[str, ...]) -> str:
    """The value if it is one of the choices; raises TaskError with the known ones if not."""
    known = [str(choice) for choice in choices]
    if value not in known:
        raise TaskError(f"There is no {value!r} to find images by. Known: {', '.join(known)}.")
    return value


def _mask_values(holds: NDArray[np.bool_], value: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """The value (n,) of every image for which a condition ``holds`` (n,); NaN for all other images."""
    return np.where(holds, value, np.nan)


def _find_restoring_depth(restored_right: NDArray[np.int8]) -> NDArray[np.float64]:
    """The first depth (n,) from which on tokens fix an image at every depth, from ``restored_right`` (n, D).

    Its codes are 1 if the tokens before this depth's block fix the image, 0 if not, ``NOT_BROKEN`` if it is not broken.
    """
    is_wrong = restored_right != 1
    # the last True of each row is the first one of the reversed row
    last_wrong = is_wrong.shape[1] - 1 - is_wrong[:, ::-1].argmax(axis=1)
    return np.where(is_wrong.any(axis=1), last_wrong + 1.0, 0.0)


def _build_rows(
    values_by_task: Mapping[str, NDArray[np.float64]],
    answers: Mapping[str, NDArray[np.int64]],
    labels: Mapping[str, NDArray[np.int64]],
    benchmark: Benchmark,
) -> pd.DataFrame:
    """The images with a finite value, the largest first; equal ones are in the order of the benchmark."""
    frames = [pd.DataFrame(columns=list(COLUMNS))]
    for task, values in values_by_task.items():
        indices = np.flatnonzero(np.isfinite(values))
        names = np.array(benchmark.find_task(task).class_names, dtype=object)
        columns = (
            [f"{task}:{SPLIT}:{number}" for number in indices], task, indices, names[labels[task][indices]],
            names[answers[task][indices]], values[indices],
        )  # fmt: skip
        frames.append(pd.DataFrame(dict(zip(COLUMNS, columns, strict=True))))
    table = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    return table.sort_values("value", ascending=False, kind="stable", ignore_index=True)
