"""Sweeps of networks other than CLIP on their page: the points of a program, and a sentence without one."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import other_kinds
import pytest
from page_harness import charts, run_until_idle, words

from app.reading import page_data, program_sweeps
from merging.images.benchmarks.benchmark import Benchmark
from merging.sharing.evaluator_program import Evaluator
from merging.sharing.evaluator_session import ProgramSession, run_program_sweep
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps.sweep import Axis, Sweep
from merging.tasks.context import Context

LINES = [
    {"task": "rte", "metric": "accuracy", "value": 0.5, "n": 40},
    {"task": "cb", "metric": "accuracy", "value": 0.7},
    {"task": "book", "metric": "perplexity", "value": 9.5, "better": "lower"},
]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A stored sweep of two experts of a T5, without points."""
    recipe = other_kinds.recipe_of_t5(tmp_path / "t5", ("qasc", "rte"))
    made = Sweep(recipes=(recipe,), axes=(Axis("task_arithmetic.scaling", (0.2, 0.4)),))
    sweep_storage.store_sweep(made, Store(tmp_path / "store", libraries=()))
    return made


@pytest.mark.full
def test_the_page_shows_what_a_program_measured(
    open_app: Any, library: Path, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MERGESCOPE_EVALUATOR", raising=False)
    at = open_app("sweeps", library, sweep=sweep.id)
    assert not at.exception and charts(at) == 0
    assert "Your own program measures a sweep of T5" in words(at) and "No point is measured yet" in words(at)
    assert not [button for button in at.button if button.key == "sweep_resume"]

    store, former, program = Store(tmp_path / "store", libraries=()), tmp_path / "former.py", tmp_path / "my_eval.py"
    former.write_text(f"print({json.dumps(LINES[2])!r})\n", "utf-8")
    measuring = Evaluator((sys.executable, str(former)))
    session = ProgramSession(Benchmark.load(library), sweep.sample, store=store, program=measuring)
    run_program_sweep(sweep, session, context=Context("cpu"), share=(0, 2))
    program.write_text("".join(f"print({json.dumps(line)!r})\n" for line in LINES), "utf-8")
    monkeypatch.setenv("MERGESCOPE_EVALUATOR", shlex.join([sys.executable, str(program)]))
    at = open_app("sweeps", library, sweep=sweep.id)
    at.button(key="sweep_resume").click().run()
    at = run_until_idle(at)
    assert not at.exception and charts(at) == 1 and "No point is measured yet" not in words(at)
    assert not [button for button in at.button if button.key == "sweep_resume"]
    at.selectbox(key=f"given_program_{sweep.id}").set_value(1).run()
    assert not at.exception and charts(at) == 1 and at.button(key="sweep_resume")

    monkeypatch.delenv("MERGESCOPE_EVALUATOR")
    with monkeypatch.context() as at_home:
        at_home.setattr(page_data, "store", lambda: store)
        newest, other = program_sweeps.find_results(sweep)
        at_home.setattr(points, "find_point", None)  # what was read is not read again
        assert program_sweeps.find_results(sweep) == [newest, other]
    assert newest.complete and other.program.endswith(" former.py") and len(other.points) == 1
    table = program_sweeps.program_table(newest)
    means = table[table["mean"]].set_index(["label", "x"])["value"]
    assert means.loc["In domain of 1 task", 0.2] == 0.5 and means.loc["Out of domain of 1 task", 0.4] == 0.7
    assert set(table[table["mean"]]["metric"]) == {"accuracy"}
    assert set(table[~table["mean"]]["label"]) == {"rte", "cb", "book"}


def test_the_form_names_the_command_where_such_runs_are_stored(
    open_app: Any, library: Path, sweep: Sweep, tmp_path: Path
) -> None:
    assert "start on a command line" not in words(open_app("sweeps", library, sweep="new"))
    execute(sweep.recipes[0], Store(tmp_path / "store", libraries=()), evaluate=False, context=Context(device="cpu"))
    at = open_app("sweeps", library, sweep="new")
    assert not at.exception and "recipes of T5 start on a command line" in words(at)
