"""Files of scores that users measured elsewhere: the two formats, and what is refused."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest

from merging.base.errors import MergingError
from merging.study.score_files import read_scores
from merging.study.score_table import Score


def file(tmp_path: Path, text: str, name: str = "scores.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_csv_and_lm_eval_are_read(tmp_path: Path) -> None:
    table = "task,split,metric,value,n\nrte,validation,accuracy,0.66,277\ncoco,,CIDEr,1.17,\n"
    assert read_scores(file(tmp_path, table)).scores == (
        Score("rte", "accuracy", 0.66, "validation", 277),
        Score("coco", "CIDEr", 1.17),
    )
    results = {"rte": {"alias": "rte", "acc,none": 0.5, "acc_stderr,none": 0.03, "exact_match,strict": 0.25}}
    data = {"results": results, "n-samples": {"rte": {"original": 277, "effective": 100}}}
    assert read_scores(file(tmp_path, json.dumps(data), "results.json")).scores == (
        Score("rte", "accuracy", 0.5, n=100),
        Score("rte", "exact_match (strict)", 0.25, n=100),
    )


@pytest.mark.parametrize(
    "text,says",
    [
        ("task,value\nrte,1\n", "scores.csv lacks the column metric"),
        ("task,metric,value\nrte,accuracy,66\n", r"scores.csv, line 2: an accuracy is from 0 to 1; got 66.0"),
        ("task,metric,value\nrte,f1,nan\n", "line 2: value is finite"),
        ("task,metric,value\nrte,f1,\n", "line 2: value is a number"),
        ("task,metric,value\n,f1,1\n", "line 2: a score has a task"),
        ("task,metric,value\nrte,f1,1\nrte,f1,2\n", "has rte  f1 twice"),
        ("task,metric,value\n", "holds 0 scores"),
        (f"task,metric,value,n\nrte,accuracy,0.5,{'9' * 400}\n", "line 2: value is finite and n from 1 to"),
        ('{"result": {}}', "no mapping called results"),
        ("{", "scores.csv"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(MergingError, match=says):
        read_scores(file(tmp_path, text))


def test_lines_may_end_as_on_old_systems_and_many_scores_are_compared_once(tmp_path: Path) -> None:
    assert read_scores(file(tmp_path, "task,metric,value\rrte,f1,1\r")).scores == (Score("rte", "f1", 1.0),)
    started = time.process_time()
    read_scores(file(tmp_path, "task,metric,value\n" + "".join(f"t{n},f1,1\n" for n in range(10_000))))
    assert time.process_time() - started < 1


def test_a_file_that_the_reader_of_csv_refuses_is_refused_in_a_sentence(tmp_path: Path) -> None:
    before = csv.field_size_limit(1000)
    try:
        with pytest.raises(MergingError, match=r"scores\.csv, line 1, is not CSV: field larger"):
            read_scores(file(tmp_path, f"task,metric,value\n{'a' * 2000},f1,1\n"))
    finally:
        csv.field_size_limit(before)
