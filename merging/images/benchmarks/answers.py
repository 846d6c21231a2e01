"""The answers of models to the images of a benchmark: for each image the predicted class and the margin.

Stored answers are a table with a row for each data set and split. A cell holds the numbers of all images, packed as
text: 16 bits each, compressed, in the order of the benchmark's images.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import StoreError
from merging.base.files.tables import Columns, Table
from merging.images.benchmarks.paired_scores import Correctness, compare_models, subtract_scores

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark

ANSWERS = "answers"  # the name of the table
COLUMNS = ("task", "split", "n", "models", "predicted", "margin")
PREDICTED, MARGIN = np.dtype("<u2"), np.dtype("<f2")  # as packed
COMPRESSION = 9


@dataclass(frozen=True, eq=False, slots=True)
class SplitAnswers:
    """The answers of m models to the n images of one split of a data set; m > 1 only if a run has several models.

    A margin is the cosine of the right class minus the largest other one.
    """

    task: str
    split: str
    models: tuple[str, ...]
    predicted: NDArray[np.int64]  # (m, n)
    margin: NDArray[np.float64]  # (m, n)
    labels: NDArray[np.int64]  # (n,)

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """Whether each model predicts each image's class (m, n)."""
        correct: NDArray[np.bool_] = self.predicted == self.labels
        return correct

    @property
    def correctness(self) -> NDArray[np.float64]:
        """The share of the models that predict each image's class (n,): 1 or 0 if there is one model."""
        share: NDArray[np.float64] = self.is_right.mean(axis=0)
        return share


class Scored(NamedTuple):
    """A model's scores (task, accuracy, n), and its answers if they are stored."""

    scores: pd.DataFrame
    correctness: Correctness | None


def compare_scored(
    first: Scored,
    second: Scored,
    in_domain: Collection[str],
    out_of_domain: Collection[str] | None = None,
    only: Collection[str] | None = None,
) -> pd.DataFrame:
    """The table of ``compare_models``; without the answers of both models, intervals and p are NaN."""
    if first.correctness is not None and second.correctness is not None:
        return compare_models(first.correctness, second.correctness, in_domain, out_of_domain, only)
    table = subtract_scores(first.scores, second.scores, in_domain, out_of_domain)
    return table if only is None else table[table["over"].isin(only)].reset_index(drop=True)


def pack_numbers(numbers: NDArray[Any], dtype: np.dtype[Any]) -> str:
    """Numbers (*S) of this type as text."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(numbers, dtype).tobytes(), COMPRESSION)).decode()


def unpack_numbers(text: str, dtype: np.dtype[Any], n: int, rows: int = 0) -> NDArray[Any]:
    """The numbers (rows, n) in a text of ``pack_numbers``; without ``rows``, as many as there are, at least one.

    Raises:
        StoreError: the text is damaged, or does not hold rows of n numbers.
    """
    unpacked = zlib.decompressobj()
    with contextlib.suppress(ValueError, TypeError, zlib.error):  # a cell may hold another type than text
        raw = unpacked.decompress(base64.b64decode(text, validate=True), max(n, 1) << 16)  # of 8,000 models at most
        if unpacked.eof:  # so the text is complete
            numbers = np.frombuffer(raw, dtype)
            return numbers.reshape(rows or max(1, len(numbers) // max(n, 1)), n)
    raise StoreError(f"Stored answers are damaged: a text does not hold numbers of {n:,} images.")


def make_answers_table(answers: Iterable[SplitAnswers]) -> Columns:
    """The table that ``read_answers`` reads, with ``COLUMNS``."""
    rows = [
        (
            one.task, one.split, len(one.labels), json.dumps(one.models),
            pack_numbers(one.predicted, PREDICTED), pack_numbers(one.margin, MARGIN),
        )
        for one in answers
    ]  # fmt: skip
    return Columns.from_rows(COLUMNS, rows)


def read_answers(table: Table, benchmark: Benchmark, split: str) -> dict[str, SplitAnswers]:
    """{data set: the stored answers of a split}, in the benchmark's order.

    Raises:
        StoreError: the answers are damaged, or are not of this benchmark's images.
    """
    rows: Sequence[tuple[Any, ...]] = list(zip(*(table[name].tolist() for name in COLUMNS), strict=True))
    answers = {}
    for task, of_split, n, models, predicted, margin in rows:
        if of_split != split:
            continue
        labels = benchmark.load_labels(task, split)
        if len(labels) != n:
            raise StoreError(f"Stored answers are of {n:,} images of {task}; this benchmark has {len(labels):,}.")
        names = _parse_models(models)
        classes = unpack_numbers(predicted, PREDICTED, n, len(names)).astype(np.int64)
        margins = unpack_numbers(margin, MARGIN, n, len(names)).astype(np.float64)
        count = len(benchmark.find_task(task).class_names)
        if classes.max(initial=0) >= count:
            raise StoreError(
                f"Stored answers are damaged: {task} has {count:,} classes, one answer is {classes.max()}."
            )
        answers[task] = SplitAnswers(task, split, names, classes, margins, labels)
    return {task.key: answers[task.key] for task in benchmark.tasks if task.key in answers}


def _parse_models(text: str) -> tuple[str, ...]:
    with contextlib.suppress(ValueError, TypeError):
        names = json.loads(text)
        if names and isinstance(names, list):
            return tuple(map(str, names))
    raise StoreError("Stored answers are damaged: the names of their models cannot be read.")


def pack_correctness(correctness: Mapping[str, NDArray[Any]]) -> str:
    """Which images of each data set a single model answers right, {data set: (n,)} of ones and zeros, as text."""
    packed = {
        task: [len(right), base64.b64encode(np.packbits(np.asarray(right, bool)).tobytes()).decode()]
        for task, right in correctness.items()
    }
    return json.dumps(packed)


def unpack_correctness(text: str) -> Correctness:
    """The correctness in a text of ``pack_correctness``. Raises StoreError if it is damaged."""
    try:
        correctness: dict[str, NDArray[np.float64]] = {}
        for task, (n, packed) in json.loads(text).items():
            packed_bits = np.frombuffer(base64.b64decode(packed, validate=True), np.uint8)
            if len(packed_bits) != (n + 7) // 8:
                raise ValueError
            correctness[str(task)] = np.unpackbits(packed_bits, count=n).astype(np.float64)
        return correctness
    except (ValueError, TypeError, AttributeError):
        raise StoreError("Stored answers are damaged: a text does not say which images are right.") from None
