"""The program that measures exported models: its lines, what goes wrong, that it is stopped, and the command."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import other_kinds
import psutil
import pytest

from merging.base.errors import Cancelled, EvaluatorError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.sharing.evaluator_program import Evaluator, find_evaluator, parse_score_lines
from merging.study.imported_scores import checkpoint_id, find_scores
from merging.study.runs.run_store import Store
from merging.study.score_table import PROGRAM, Score, ScoreTable
from merging.tasks.context import Context

GOOD = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
assert (folder / "model.safetensors").is_file()
print("loading", file=sys.stderr)
print(json.dumps({"task": "rte", "metric": "accuracy", "value": 0.66, "n": 277, "better": "higher"}))
print(json.dumps({"task": "book", "metric": "perplexity", "value": 9.5, "better": "lower"}))
"""


def program(tmp_path: Path, code: str) -> Evaluator:
    path = tmp_path / "my_eval.py"
    path.write_text(code, "utf-8")
    return Evaluator((sys.executable, str(path)))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe of two experts of a T5."""
    path = tmp_path / "recipe.yaml"
    path.write_text(other_kinds.recipe_of_t5(tmp_path / "t5", "ab").to_yaml(), "utf-8")
    return path


@pytest.mark.parametrize(
    "line,says",
    [
        ('{"task": "a", "metric": "accuracy", "value": NaN}', "line 2: value is finite"),
        ('{"task": "a", "metric": "accuracy", "value": 66}', "line 2: an accuracy is from 0 to 1"),
        ('{"task": "a", "metric": "f1", "value": 0.5, "stderr": 1}', "line 2: .*got stderr"),
        ('{"task": "a", "metric": "f1", "value": "0.5"}', "line 2: value is a number"),
        ('{"task": "a", "metric": "f1", "value": true}', "line 2: value is a number"),
        ('{"task": "a", "metric": "f1", "value": 1, "better": "more"}', "line 2: better is higher or lower"),
        ("Loading weights", "line 2 is not a JSON object; got 'Loading weights'"),
        ("[" * 100_000, "line 2 is not a JSON object"),
        ('{"metric": "f1", "value": 1}', "line 2: a score has a task"),
    ],
)
def test_a_wrong_line_is_named(line: str, says: str) -> None:
    good = '{"task": "b", "metric": "f1", "value": 1}'
    with pytest.raises(EvaluatorError, match=says):
        parse_score_lines(f"{good}\n{line}\n".encode(), "my_eval.py")


def test_what_a_program_does_wrong_is_said(tmp_path: Path) -> None:
    for code, says in (
        ("import sys; sys.exit('no such task')", "ended with the code 1. Its last line: no such task"),
        ("print('x' * 3_000_000)", "printed more than 1 MB"),
        ("pass", "holds 0 scores"),
    ):
        with pytest.raises(EvaluatorError, match=says):
            program(tmp_path, code).measure(tmp_path)
    with pytest.raises(EvaluatorError, match="nothing-here cannot be started: No such file"):
        Evaluator(("/nothing-here",)).measure(tmp_path)


def test_a_hanging_program_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import pathlib, signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(sys.argv[1], 'pid').write_text(str(child.pid))\ntime.sleep(600)\n"
    )
    pid = tmp_path / "pid"
    with pytest.raises(Cancelled):
        program(tmp_path, code).measure(tmp_path, Context(cancel=lambda: pid.is_file() and bool(pid.read_text())))
    for _ in range(50):
        number = int(pid.read_text())
        if not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    raise AssertionError("what the program started still runs")


def test_it_is_read_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MERGESCOPE_EVALUATOR", raising=False)
    assert find_evaluator() is None
    monkeypatch.setenv("MERGESCOPE_EVALUATOR", "python 'my eval.py'")
    assert find_evaluator() == Evaluator(("python", "my eval.py"))
    monkeypatch.setenv("MERGESCOPE_SHARED", "1")
    assert find_evaluator() is None
    monkeypatch.delenv("MERGESCOPE_SHARED")
    monkeypatch.setenv("MERGESCOPE_EVALUATOR", "python 'my")
    with pytest.raises(EvaluatorError, match="not a command line"):
        find_evaluator()


def scores_of(store: Store, run_id: str) -> ScoreTable:
    found = find_scores(store.root, run_id)
    assert found is not None
    return found


def test_runs_of_other_networks_get_its_scores(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    store = Store(tmp_path / "store", libraries=())
    words = ["--store", str(store.root)]
    monkeypatch.setenv(
        "MERGESCOPE_EVALUATOR", shlex.join(program(tmp_path, "raise SystemExit('bad day')").command_words)
    )
    assert main(["run", str(recipe), *words]) != exit_codes.DONE
    (run,) = store.list_runs()
    assert f"Its last line: bad day Run {run.id} is stored, without scores." in capsys.readouterr().err
    program(tmp_path, GOOD)
    assert main(["run", str(recipe), *words]) == exit_codes.DONE
    said = capsys.readouterr().out
    assert "my_eval.py:" in said and "rte  accuracy  0.66 (n = 277)" in said
    found = scores_of(store, run.id)
    assert found.source == PROGRAM and found.origin.endswith("my_eval.py") and "/" not in found.origin
    assert found.scores[1] == Score("book", "perplexity", 9.5, better="lower")
    assert not list((store.root / "evaluating").iterdir())
    program(tmp_path, GOOD.replace("0.66", "0.7"))
    assert main(["run", str(recipe), *words]) == exit_codes.DONE  # it has scores already
    assert scores_of(store, run.id).scores[0].value == 0.66
    assert main(["scores", run.id, "--evaluate", *words]) == exit_codes.DONE
    assert scores_of(store, run.id).scores[0].value == 0.7
    code = "import json, pathlib, sys\nname = pathlib.Path(sys.argv[1]).name\nif name == 'b': sys.exit('no head')\n"
    line = "{'task': name[:10], 'metric': 'f1', 'value': 1}"
    program(tmp_path, f"{code}print(json.dumps({line}))\n")
    assert main(["scores", run.id, "--evaluate", "--references", *words]) == exit_codes.DONE
    assert "b: " in (said := capsys.readouterr().err) and "Its last line: no head" in said
    stored = {name: find_scores(store.root, checkpoint_id(digest)) for name, digest in run.inputs.items()}
    tasks = {name: [score.task for score in found.scores] if found else None for name, found in stored.items()}
    assert tasks == {"pretrained": ["pretrained"], "experts/a": ["a"], "experts/b": None}
    table = tmp_path / "scores.csv"
    table.write_text("task,metric,value,n\nrte,accuracy,0.25,277\n", "utf-8")
    assert main(["scores", run.id, "--from", str(table), *words]) == exit_codes.DONE
    assert "rte  accuracy  0.25 (n = 277)" in capsys.readouterr().out
    assert main(["scores", run.id, "--json", *words]) == exit_codes.DONE
    assert json.loads(capsys.readouterr().out)["file"] == "scores.csv"
