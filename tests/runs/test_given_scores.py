"""Scores that users measured elsewhere: the two formats, what is refused, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merging.cli import exit_codes
from merging.cli.main import main
from merging.errors import MergingError
from merging.runs.given.scores import GivenScore, given_scores, keep_scores, read_scores


def file(tmp_path: Path, text: str, name: str = "scores.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_csv_and_lm_eval_are_read(tmp_path: Path) -> None:
    table = "task,split,metric,value,n\nrte,validation,accuracy,0.66,277\ncoco,,CIDEr,1.17,\n"
    assert read_scores(file(tmp_path, table)) == (
        GivenScore("rte", "accuracy", 0.66, "validation", 277),
        GivenScore("coco", "CIDEr", 1.17),
    )
    results = {"rte": {"alias": "rte", "acc,none": 0.5, "acc_stderr,none": 0.03, "exact_match,strict": 0.25}}
    data = {"results": results, "n-samples": {"rte": {"original": 277, "effective": 100}}}
    assert read_scores(file(tmp_path, json.dumps(data), "results.json")) == (
        GivenScore("rte", "accuracy", 0.5, n=100),
        GivenScore("rte", "exact_match (strict)", 0.25, n=100),
    )


@pytest.mark.parametrize(
    "text,says",
    [
        ("task,value\nrte,1\n", "scores.csv lacks the column metric"),
        ("task,metric,value\nrte,accuracy,66\n", r"scores.csv, line 2: an accuracy is from 0 to 1; got 66.0"),
        ("task,metric,value\nrte,f1,nan\n", "line 2: value is finite"),
        ("task,metric,value\nrte,f1,\n", "line 2: value is a number"),
        ("task,metric,value\n,f1,1\n", "line 2: a score has a task"),
        ("task,metric,value\nrte,f1,1\nrte,f1,2\n", "gives rte  f1 twice"),
        ("task,metric,value\n", "holds 0 scores"),
        ('{"result": {}}', "no mapping called results"),
        ("{", "scores.csv"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(MergingError, match=says):
        read_scores(file(tmp_path, text))


def test_scores_of_a_run_are_kept_and_replaced(tmp_path: Path) -> None:
    one, two = GivenScore("rte", "accuracy", 0.5), GivenScore("cb", "f1", 0.25, "test", 56)
    keep_scores(tmp_path, "0" * 12, [one], "a.csv")
    keep_scores(tmp_path, "0" * 12, [two], "b.csv")
    assert given_scores(tmp_path, "0" * 12) == ("b.csv", (two,))
    assert given_scores(tmp_path, "1" * 12) == ("", ())


def test_the_command_gives_a_run_scores(recipe, run_it, store, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    run = run_it(recipe)
    path = file(tmp_path, "task,metric,value,n\nrte,accuracy,0.66,277\n")
    assert main(["scores", run.id, "--from", str(path), "--store", str(store.root)]) == exit_codes.DONE
    assert "rte  accuracy  0.66 (n = 277)" in capsys.readouterr().out
    assert main(["scores", run.id, "--store", str(store.root), "--json"]) == exit_codes.DONE
    assert json.loads(capsys.readouterr().out)["file"] == "scores.csv"
