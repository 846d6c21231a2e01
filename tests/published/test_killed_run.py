"""A run that is killed between two rows goes on when it is started again, and no row is computed twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import LoopbackHub
from published_calls import keys, run

from merging.engine import run as engine
from merging.published.computing import references, row_runs

pytestmark = pytest.mark.slow
# Each row is a group of its own; the process is killed as the second one is to be scored.
KILLED = """
import os, signal
from merging.cli.main import main
from merging.published.computing import row_runs

score, calls = row_runs.score_together, []

def killed(work, *args, **options):
    calls.append(work)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return score(work, *args, **options)

row_runs.MOST, row_runs.score_together = 1, killed
main(["published", "run", "smoke", "--yes"])
"""


def test_a_killed_run_goes_on_and_computes_no_row_twice(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # With another number of threads the heads, and so the ids, are the same.
    ended = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=600, check=False,
        cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    merge, score, merged, scored = engine.run, row_runs.score_together, list[str](), list[int]()

    def noted_merge(recipe: Any, *args: Any, **options: Any) -> Any:
        merged.append(recipe.title)
        return merge(recipe, *args, **options)

    def noted_score(work: Any, *args: Any, **options: Any) -> Any:
        scored.append(len(work))
        return score(work, *args, **options)

    def again(*args: Any, **options: Any) -> None:
        raise AssertionError("the references are scored again")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", noted_merge)
        patch.setattr(row_runs, "score_together", noted_score)
        patch.setattr(references, "score_together", again)
        asked = len(hub.requests)
        table = run(capsys)
    assert len(hub.requests) == asked  # nothing is fetched twice, either
    assert merged == ["Ties"] and scored == [2]  # the second row's model was there, the first row's scores
    assert keys(table) == ["pretrained", "individual", "averaging", "task_arithmetic", "ties"]
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "another"))
    assert run(capsys) == table
