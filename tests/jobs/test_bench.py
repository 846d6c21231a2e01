"""The process of previews: warm, one, and gone when nobody needs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.previews.preview_process import PreviewProcess, PreviewRequest, PreviewState
from merging.study.previews.preview_samples import PreviewSample
from merging.study.previews.previewer import Previewer
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks import process
from merging.tasks.context import Context
from merging.tasks.process import RequestLoop

LONG = 120  # seconds that a process may take on a busy machine
ROOT = Path(__file__).resolve().parents[2]


def request(benchmark: Benchmark, scaling: float = 0.3, **more) -> PreviewRequest:
    recipe = Recipe.build(
        "task_arithmetic", {"scaling": scaling}, [], benchmark.pretrained, benchmark.experts, f"λ {scaling}"
    )
    return PreviewRequest(recipe=recipe.to_yaml(), benchmark=str(benchmark.folder), store="nowhere", **more)


def wait(condition) -> bool:
    limit = time.monotonic() + LONG
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)
    return bool(condition())


def answered(bench: PreviewProcess, session: str, asked: PreviewRequest) -> PreviewState:
    bench.send_request(session, asked)
    assert wait(lambda: bench.find_state(session, asked).done)
    return bench.find_state(session, asked)


class Asked:
    """A loop in this process, whose answers are kept."""

    def __init__(self) -> None:
        self.answers: list[dict] = []
        self.loop = RequestLoop(self.answers.append, "cpu")

    def answer(self, *asked: PreviewRequest) -> list[dict]:
        """The answers to requests, each of a session of its own."""
        self.answers.clear()
        self.loop.add_requests(
            [json.dumps({"id": n, "session": f"s{n}", **asdict(one)}) for n, one in enumerate(asked, 1)]
        )
        self.loop.run(0.01)
        return self.answers


def test_answers_come_stage_by_stage_and_sessions_take_turns(tiny_benchmark):
    answers = Asked().answer(request(tiny_benchmark), request(tiny_benchmark, 0.5))
    seen = [(answer["id"], answer["preview"]["n"], answer["done"]) for answer in answers]
    sizes = ((48, False), (96, False), (120, True))
    assert seen == [(number, n, done) for n, done in sizes for number in (1, 2)]


def test_who_had_its_time_is_left_with_a_smaller_sample(tiny_benchmark, monkeypatch):
    monkeypatch.setattr(process, "SECONDS_BEFORE_YIELDING", -1.0)
    answers = Asked().answer(request(tiny_benchmark), request(tiny_benchmark, 0.5))
    assert [answer["preview"]["sample"]["per_task"] for answer in answers] == [8, 8, 16, None]


def test_what_cannot_be_previewed_is_a_sentence(tiny_benchmark, tmp_path):
    gone = Recipe.build("ties", {}, [], "<b>gone\u202e", {"a": "x"}).to_yaml()
    plain = request(tiny_benchmark)
    wrong = replace(plain, recipe=gone), replace(plain, recipe="no recipe"), replace(plain, benchmark=str(tmp_path))
    answers = Asked().answer(*wrong, replace(plain, run="0" * 12), replace(plain, per_task=2))
    errors = [answer.get("error", "") for answer in answers]
    for said, error in zip(("gone", "recipe", "no benchmark here", "There is no run"), errors, strict=False):
        assert said in error and "\u202e" not in error
    assert answers[-1]["preview"]["n"] == 12


def test_a_benchmark_that_was_made_anew_is_opened_anew(other_benchmark):
    asked, titles = Asked(), []
    path = other_benchmark.folder / "tasks.json"
    for _ in range(2):
        (answer,) = asked.answer(request(other_benchmark, per_task=1))
        titles.append({row["title"] for row in answer["preview"]["changes"]})
        path.write_text(path.read_text().replace("Letters", "Glyphs"))
    assert "Letters" in titles[0] and "Glyphs" in titles[1]


def test_an_unfinished_request_is_dropped_for_another_only(tiny_benchmark, monkeypatch):
    bench, first, second = PreviewProcess("cpu"), request(tiny_benchmark, 0.2), request(tiny_benchmark, 0.4)
    monkeypatch.setattr(bench, "_send", lambda session: None)
    bench.send_request("a", first)
    bench.cancel_other("a", first)
    assert bench.find_state("a", first) is not None
    bench.cancel_other("b", second)
    bench.cancel_other("a", second)
    assert bench.find_state("a", first) is None


@pytest.mark.full
def test_one_warm_process_answers_and_ends_when_idle(tiny_benchmark, tmp_path):
    store = Store(tmp_path, libraries=())
    asked = request(tiny_benchmark)
    run = execute(Recipe.from_yaml(asked.recipe), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    charged: list[tuple[str, int]] = []
    bench = PreviewProcess("cpu", idle=2.0, charge=lambda session, images: charged.append((session, images)))
    try:
        assert bench.pid == 0
        state = answered(bench, "a", asked)
        assert sum(images for session, images in charged if session == "a") == state.preview.n > 0
        expected = Previewer(tiny_benchmark, "cpu").begin(Recipe.from_yaml(asked.recipe), PreviewSample()).finish()
        assert state.error == "" and state.preview.changes.equals(expected.changes)
        assert bench.send_request("a", asked) is state  # nothing is computed again
        pid = bench.pid
        against = replace(request(tiny_benchmark, 0.5, run=run.id), store=str(tmp_path))
        assert answered(bench, "b", against).preview.reference == "λ 0.3" and bench.pid in (pid, 0)
        assert bench.find_state("a", against) is None
        assert wait(lambda: bench.pid == 0)
        other = request(tiny_benchmark, 0.9, per_task=3)
        assert answered(bench, "a", other).preview.n == 18
        assert bench.find_state("a", asked) is None  # what was asked before is gone
        bench.cancel_other("a", asked)
        assert bench.find_state("a", other) is not None  # it is done
        bench.cancel("a")
        assert bench.find_state("a", other) is None
    finally:
        bench.close()
    assert bench.pid == 0


def test_a_killed_process_is_started_again_and_then_given_up(tiny_benchmark):
    bench = PreviewProcess("cpu")
    try:
        first = request(tiny_benchmark, per_task=2)
        bench.send_request("a", first)
        killed = set()

        def kill() -> None:
            while not bench.find_state("a", first).done:
                if (pid := bench.pid) and pid not in killed:
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)

        thread = threading.Thread(target=kill)
        thread.start()
        assert wait(lambda: bench.find_state("a", first).done)
        thread.join()
        assert len(killed) == 2 and "The process of previews was killed" in bench.find_state("a", first).error
        assert bench.find_state("a", first).preview is None
        assert not bench.send_request("a", first).error and bench.waiting_count == 1  # asked again, it is sent again
    finally:
        bench.close()


def test_a_process_that_cannot_start_is_an_error(tiny_benchmark, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    state = PreviewProcess("cpu").send_request("a", request(tiny_benchmark))
    assert state.done and "cannot be started: Resource temporarily unavailable" in state.error
