"""Scores that users measured elsewhere: read from their file, kept beside the run, never mixed with own ones."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from merging.benchmarks.metrics import wilson
from merging.errors import MergingError
from merging.files.disk import explained
from merging.files.records import write_json
from merging.files.short_digest import SHORT_DIGEST
from merging.files.strict_json import parse
from merging.text import first_few, printable

DIGITS = 12  # of the digest of a checkpoint
FOLDER = "given"  # of a store: one file for each run, called by its id
COLUMNS = ("task", "metric", "value", "split", "n")
PROPORTIONS = ("accuracy", "accuracy_norm", "exact_match")  # metrics that are shares of examples
BETTER = ("", "higher", "lower")
NAMES = {"acc": "accuracy", "acc_norm": "accuracy_norm"}  # lm-eval's short names of metrics
MOST_BYTES, MOST_ROWS, MOST_TEXT = 1 << 20, 10_000, 200
MOST_EXAMPLES = 10**12  # n of a score
LM_EVAL = re.compile(r"([^,]+),([^,]+)")  # a metric and its filter, as in acc,none


@dataclass(frozen=True, slots=True)
class GivenScore:
    """One score from a user's file: a metric of a task, on ``n`` examples if that is known.

    ``better`` is "higher" or "lower", empty if that was not said.
    """

    task: str
    metric: str
    value: float
    split: str = ""
    n: int | None = None
    better: str = ""

    @property
    def proportion(self) -> bool:
        """Whether it is a share of examples; sums of parts, such as F1, are none."""
        return self.metric.split()[0] in PROPORTIONS and 0 <= self.value <= 1

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson 95 % interval of a proportion whose n is known; NaN for all other scores."""
        return wilson(round(self.value * self.n), self.n) if self.proportion and self.n else (math.nan, math.nan)


def read_scores(path: Path) -> tuple[GivenScore, ...]:
    """The scores in a CSV file with columns task, metric and value (split, n), or in a JSON file of lm-eval.

    Raises:
        MergingError: it is neither, or a line of it is wrong; says which.
    """
    name = printable(path.name, 80)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise MergingError(f"{name} cannot be read: {error.strerror}.") from None
    return scores_in(raw, name)


def scores_in(raw: bytes, file: str) -> tuple[GivenScore, ...]:
    """The scores in the content of such a file. Raises MergingError as ``read_scores``."""
    name = printable(file, 80)
    if len(raw) > MOST_BYTES:
        raise MergingError(f"{name} is larger than a file of scores, of which 1 MB is read.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MergingError(f"{name} is no text; scores are given as CSV, or as JSON of lm-eval.") from None
    rows = _of_lm_eval(raw, name) if text.lstrip().startswith("{") else _of_csv(text, name)
    return checked(rows, name)


def checked(rows: Iterable[tuple[str, Mapping[str, Any]]], name: str) -> tuple[GivenScore, ...]:
    """Scores from rows, each with the place that an error names. Raises MergingError."""
    scores = tuple(_score(row, where) for where, row in rows)
    if not scores or len(scores) > MOST_ROWS:
        raise MergingError(f"{name} holds {len(scores):,} scores; from 1 to {MOST_ROWS:,} are expected.")
    places = Counter((score.task, score.split, score.metric) for score in scores)
    if twice := sorted({" ".join(place) for place, count in places.items() if count > 1}):
        raise MergingError(f"{name} gives {first_few(twice)} twice.")
    return scores


def _of_csv(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    table = csv.DictReader(io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n")))
    try:
        yield from _of_table(table, name)
    except csv.Error as error:
        raise MergingError(f"{name}, line {table.line_num}, is no CSV: {error}.") from None


def _of_table(table: csv.DictReader[str], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    columns = table.fieldnames or ()
    if missing := [column for column in COLUMNS[:3] if column not in columns]:
        raise MergingError(
            f"{name} lacks the {'columns' if len(missing) > 1 else 'column'} {', '.join(missing)}; scores are given as "
            "CSV with the columns task,split,metric,value,n (split and n may be empty), or as JSON of lm-eval."
        )
    if strange := [str(column) for column in columns if column not in COLUMNS]:
        raise MergingError(f"{name} has columns that scores do not have: {first_few(strange)}.")
    for row in table:
        yield f"{name}, line {table.line_num}", row


def _of_lm_eval(raw: bytes, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        data = parse(raw, name)
    except MergingError as error:
        raise MergingError(f"{error}") from None
    results, samples = data.get("results"), data.get("n-samples", {})
    if not isinstance(results, dict) or not isinstance(samples, dict):
        raise MergingError(f"{name} is no JSON of lm-eval: it has no mapping called results.")
    for task, metrics in results.items():
        counts = samples.get(task)
        n = counts.get("effective", "") if isinstance(counts, dict) else ""
        for key, value in metrics.items() if isinstance(metrics, dict) else ():
            match = LM_EVAL.fullmatch(key)
            if match is None or match[1].endswith("_stderr") or value == "N/A":
                continue
            metric = NAMES.get(match[1], match[1]) + ("" if match[2] == "none" else f" ({match[2]})")
            yield f"{name}, {task}", {"task": task, "metric": metric, "value": value, "n": n}


def _score(row: Mapping[str, Any], where: str) -> GivenScore:
    """A checked score. Raises MergingError that says where it stands."""
    keys = ("task", "metric", "split", "better")
    texts = {key: printable(str(row.get(key) or "").strip(), MOST_TEXT) for key in keys}
    if not texts["task"] or not texts["metric"]:
        raise MergingError(f"{where}: a score has a task and a metric.")
    try:
        value = float(row["value"])
        n = int(row["n"]) if row.get("n") not in {None, ""} else None
        if isinstance(row.get("n"), float) and n != row["n"]:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise MergingError(f"{where}: value is a number, and n a whole number or empty.") from None
    if not math.isfinite(value) or (n is not None and not 1 <= n <= MOST_EXAMPLES):
        raise MergingError(
            f"{where}: value is finite and n from 1 to {MOST_EXAMPLES:,}; got {value} and {printable(str(n), 40)}."
        )
    if texts["metric"].startswith("accuracy") and not 0 <= value <= 1:
        raise MergingError(f"{where}: an accuracy is from 0 to 1; got {value}.")
    if texts["better"] not in BETTER:
        raise MergingError(f"{where}: better is higher or lower; got {texts['better']!r}.")
    return GivenScore(texts["task"], texts["metric"], value, texts["split"], n, texts["better"])


def keep_scores(root: Path, run_id: str, scores: Sequence[GivenScore], file: str) -> None:
    """Store the scores of a run, in place of those that it was given before, with the name of their file."""
    path = _place(root, run_id)
    with explained("The scores"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"file": printable(file, 80), "scores": [asdict(score) for score in scores]})


def given_scores(root: Path, run_id: str) -> tuple[str, tuple[GivenScore, ...]]:
    """The name of the file that scores of a run came from, and the scores; none if it was given none."""
    try:
        record = json.loads(_place(root, run_id).read_bytes())
        scores = tuple(_score(row, "given.json") for row in record["scores"])
        return printable(str(record["file"]), 80), scores
    except (OSError, ValueError, KeyError, TypeError, MergingError):
        return "", ()


def given_id(digest: str) -> str:
    """The name under which scores of a checkpoint are kept, as those of a run are under its id."""
    return digest[:DIGITS]


def forget_scores(root: Path, run_id: str) -> None:
    """Remove the scores that a run was given, if there are some."""
    with explained("The scores"):
        _place(root, run_id).unlink(missing_ok=True)


def runs_with_scores(root: Path) -> set[str]:
    """The ids of the runs that were given scores."""
    try:
        return {path.stem for path in (root / FOLDER).iterdir() if SHORT_DIGEST.fullmatch(path.stem)}
    except OSError:
        return set()


def _place(root: Path, run_id: str) -> Path:
    if not SHORT_DIGEST.fullmatch(run_id):
        raise MergingError(f"{printable(run_id, 40)!r} is no id of a run.")
    return root / FOLDER / f"{run_id}.json"
