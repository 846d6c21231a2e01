"""Files of scores that users measured with other programs: CSV, or the JSON of lm-eval."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from merging.base.errors import MergingError
from merging.base.files.strict_json import parse_json
from merging.base.text import first_few, printable
from merging.study.score_table import GIVEN, ScoreTable, check_scores

COLUMNS = ("task", "metric", "value", "split", "n")
METRIC_NAMES = {"acc": "accuracy", "acc_norm": "accuracy_norm"}  # lm-eval's short names of metrics
MAX_BYTES = 1 << 20
LM_EVAL_METRIC = re.compile(r"([^,]+),([^,]+)")  # a metric and its filter, as in acc,none


def read_scores(path: Path) -> ScoreTable:
    """The scores in a CSV file with columns task, metric and value (split, n), or in a JSON file of lm-eval.

    Raises:
        MergingError: the file is neither, or a line is wrong; the message names the line.
    """
    name = printable(path.name, 80)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MergingError(f"{name} cannot be read: {error.strerror}.") from None
    return parse_scores(raw, name)


def parse_scores(raw: bytes, file: str) -> ScoreTable:
    """The scores in the content of a file for ``read_scores``. Raises MergingError for the same reasons."""
    name = printable(file, 80)
    if len(raw) > MAX_BYTES:
        raise MergingError(f"{name} is larger than a file of scores, of which 1 MB is read.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MergingError(f"{name} is not text; scores are read from CSV, or from JSON of lm-eval.") from None
    rows = _read_lm_eval(raw, name) if text.lstrip().startswith("{") else _read_csv(text, name)
    return check_scores(rows, source=GIVEN, origin=name)


def _read_csv(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    table = csv.DictReader(io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n")))
    try:
        columns = table.fieldnames or ()
        if missing := [column for column in COLUMNS[:3] if column not in columns]:
            raise MergingError(
                f"{name} lacks the {'columns' if len(missing) > 1 else 'column'} {', '.join(missing)}; scores are "
                "read from CSV with the columns task,split,metric,value,n (split and n may be empty), or from JSON of "
                "lm-eval."
            )
        if unknown := [str(column) for column in columns if column not in COLUMNS]:
            raise MergingError(f"{name} has columns that scores do not have: {first_few(unknown)}.")
        for row in table:
            yield f"{name}, line {table.line_num}", row
    except csv.Error as error:
        raise MergingError(f"{name}, line {table.line_num}, is not CSV: {error}.") from None


def _read_lm_eval(raw: bytes, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    data = parse_json(raw, name)
    results, samples = data.get("results"), data.get("n-samples", {})
    if not isinstance(results, dict) or not isinstance(samples, dict):
        raise MergingError(f"{name} is not JSON of lm-eval: it has no mapping called results.")
    for task, metrics in results.items():
        counts = samples.get(task)
        n = counts.get("effective", "") if isinstance(counts, dict) else ""
        for key, value in metrics.items() if isinstance(metrics, dict) else ():
            match = LM_EVAL_METRIC.fullmatch(key)
            if match is None or match[1].endswith("_stderr") or value == "N/A":
                continue
            metric = METRIC_NAMES.get(match[1], match[1]) + ("" if match[2] == "none" else f" ({match[2]})")
            yield f"{name}, {task}", {"task": task, "metric": metric, "value": value, "n": n}
