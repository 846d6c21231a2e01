"""The process of previews: warm, one, and gone when nobody needs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from merging.benchmarks.benchmark import Benchmark
from merging.jobs.bench import Bench, PreviewRequest, PreviewState
from merging.previews import samples, work, worker
from merging.previews.samples import PreviewSample
from merging.previews.work import Previewer
from merging.previews.worker import Worker
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store
from merging.tasks.context import Context

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


def answered(bench: Bench, session: str, asked: PreviewRequest) -> PreviewState:
    bench.ask(session, asked)
    assert wait(lambda: bench.state(session, asked).done)
    return bench.state(session, asked)


class Asked:
    """A worker in this process, whose answers are kept, and which stages they are of."""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark, self.answers = benchmark, []
        self.worker = Worker(self.answers.append, "cpu")

    def take(self, number: int, session: str, asked: PreviewRequest | None) -> None:
        fields = {name: getattr(asked, name) for name in PreviewRequest.__slots__} if asked else {}
        self.worker.take([json.dumps({"id": number, "session": session, **fields})])

    def seen(self) -> list[tuple[int, int]]:
        return [(answer["id"], answer["preview"]["n"]) for answer in self.answers]


def test_answers_come_stage_by_stage_and_sessions_take_turns(tiny_benchmark):
    asked = Asked(tiny_benchmark)
    asked.take(1, "a", request(tiny_benchmark))
    asked.take(2, "b", request(tiny_benchmark, 0.5))
    asked.worker.run(0.01)
    assert asked.seen() == [(1, 48), (2, 48), (1, 96), (2, 96), (1, 120), (2, 120)]
    assert [answer["done"] for answer in asked.answers] == [False] * 4 + [True] * 2


def test_sessions_take_turns_by_batches(tiny_benchmark, monkeypatch):
    asked, looked, predicted = Asked(tiny_benchmark), [], Previewer.predicted
    monkeypatch.setattr(samples, "BATCH", 8)
    monkeypatch.setattr(Previewer, "predicted", lambda own, model, *rest: _noted(looked, predicted, own, model, *rest))
    asked.take(1, "a", request(tiny_benchmark))
    asked.take(2, "b", request(tiny_benchmark, 0.5))
    asked.worker.run(0.01)
    models = list(dict.fromkeys(looked))  # the draft of each session, then the model that both are compared with
    turns = [models.index(one) for one in looked[:8]]
    assert turns == [0, 1] * 4
    assert asked.answers[-1]["preview"]["n"] == 120


def _noted(looked, predicted, own, model, *rest):
    looked.append(id(model))
    return predicted(own, model, *rest)


def test_who_had_its_time_is_left_with_a_smaller_sample_while_others_wait(tiny_benchmark, monkeypatch):
    asked = Asked(tiny_benchmark)
    monkeypatch.setattr(worker, "TIME_ENOUGH", -1.0)
    asked.take(1, "a", request(tiny_benchmark))
    asked.take(2, "b", request(tiny_benchmark, 0.5))
    asked.worker.run(0.01)
    assert asked.seen() == [(1, 48), (2, 48), (2, 96), (2, 120)]
    assert [answer["done"] for answer in asked.answers] == [True, False, False, True]
    assert asked.answers[0]["preview"]["sample"]["per_task"] == 8


def test_a_newer_request_of_a_session_stops_the_older_one(tiny_benchmark, monkeypatch):
    asked = Asked(tiny_benchmark)
    predicted, batches = Previewer.predicted, []

    def another(own, *args):
        batches.append(1)
        if len(batches) == 2:  # between two batches
            asked.take(2, "a", request(tiny_benchmark, 0.5))
            asked.take(3, "b", request(tiny_benchmark, 0.7, per_task=4))
        return predicted(own, *args)

    monkeypatch.setattr(Previewer, "predicted", another)
    asked.take(1, "a", request(tiny_benchmark))
    asked.worker.run(0.01)
    assert 1 not in {number for number, _ in asked.seen()}
    assert sorted({number for number, _ in asked.seen()}) == [2, 3]
    asked.take(4, "a", request(tiny_benchmark, 0.9))
    asked.take(5, "a", None)
    asked.worker.run(0.01)
    assert 4 not in {number for number, _ in asked.seen()}
    assert asked.worker.open_requests == 0  # nothing is remembered of sessions that wait for nothing


def test_errors_are_sentences_and_the_next_request_is_answered(tiny_benchmark, tmp_path, monkeypatch):
    asked = Asked(tiny_benchmark)
    gone = Recipe.build("ties", {}, [], "<b>gone\u202e", {"a": "x"})
    asked.take(1, "a", PreviewRequest(recipe=gone.to_yaml(), benchmark=str(tiny_benchmark.folder), store="s"))
    asked.take(2, "b", PreviewRequest(recipe="no recipe", benchmark=str(tiny_benchmark.folder), store="s"))
    asked.take(3, "c", PreviewRequest(recipe=gone.to_yaml(), benchmark=str(tmp_path), store="s"))
    asked.take(4, "d", request(tiny_benchmark, run="0" * 12))
    asked.worker.run(0.01)
    errors = {answer["id"]: answer["error"] for answer in asked.answers}
    assert "gone" in errors[1] and "\u202e" not in errors[1] and "There is no run" in errors[4]
    assert "recipe" in errors[2] and "no benchmark here" in errors[3]
    for number, error in ((5, MemoryError()), (6, RuntimeError("DefaultCPUAllocator: can't allocate memory"))):
        monkeypatch.setattr(work, "drawn", lambda *_, error=error: (_ for _ in ()).throw(error))
        asked.take(number, "a", request(tiny_benchmark))
        asked.worker.run(0.01)
        assert "ran out of memory" in asked.answers[-1]["error"]
    monkeypatch.undo()
    asked.take(7, "a", request(tiny_benchmark, per_task=2))
    asked.worker.run(0.01)
    assert asked.answers[-1]["preview"]["n"] == 12


def test_a_benchmark_that_was_made_anew_is_opened_anew(other_benchmark):
    asked = Asked(other_benchmark)
    asked.take(1, "a", request(other_benchmark, per_task=1))
    asked.worker.run(0.01)
    path = other_benchmark.folder / "tasks.json"
    path.write_text(path.read_text().replace("Letters", "Glyphs"))
    asked.take(2, "a", request(other_benchmark, per_task=1))
    asked.worker.run(0.01)
    titles = [{row["title"] for row in answer["preview"]["changes"]} for answer in asked.answers]
    assert "Letters" in titles[0] and "Glyphs" in titles[1]


@pytest.mark.slow
def test_one_warm_process_answers_and_ends_when_idle(tiny_benchmark, tmp_path):
    store = Store(tmp_path, libraries=())
    asked = request(tiny_benchmark)
    run = execute(Recipe.from_yaml(asked.recipe), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    charged: list[tuple[str, int]] = []
    bench = Bench("cpu", idle=2.0, charge=lambda session, images: charged.append((session, images)))
    try:
        assert bench.pid == 0
        state = answered(bench, "a", asked)
        assert sum(images for session, images in charged if session == "a") == state.preview.n > 0
        expected = Previewer(tiny_benchmark, "cpu").begin(Recipe.from_yaml(asked.recipe), PreviewSample())
        while not expected.done:
            expected.advance()
        assert state.error == "" and state.preview.changes.equals(expected.result().changes)
        assert bench.ask("a", asked) is state  # nothing is computed again
        pid = bench.pid
        against = request(tiny_benchmark, 0.5, run=run.id)
        against = PreviewRequest(**{**{n: getattr(against, n) for n in against.__slots__}, "store": str(tmp_path)})
        assert answered(bench, "b", against).preview.reference == "λ 0.3" and bench.pid in (pid, 0)
        assert bench.state("a", against) is None
        assert wait(lambda: bench.pid == 0)
        other = request(tiny_benchmark, 0.9, per_task=3)
        assert answered(bench, "a", other).preview.n == 18
        assert bench.state("a", asked) is None  # what was asked before is gone
        bench.cancel("a")
        assert bench.state("a", other) is None
    finally:
        bench.close()
    assert bench.pid == 0


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_then_given_up(tiny_benchmark):
    bench = Bench("cpu")
    try:
        first = request(tiny_benchmark, per_task=2)
        bench.ask("a", first)
        killed = set()

        def kill() -> None:
            while not bench.state("a", first).done:
                if (pid := bench.pid) and pid not in killed:
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)

        thread = threading.Thread(target=kill)
        thread.start()
        assert wait(lambda: bench.state("a", first).done)
        thread.join()
        assert len(killed) == 2 and "ended by SIGKILL" in bench.state("a", first).error
        assert bench.state("a", first).preview is None
        assert answered(bench, "a", first).preview.n == 12  # asked again, it is sent again
    finally:
        bench.close()


@pytest.mark.slow
def test_the_process_ends_with_its_server(tiny_benchmark):
    server = (
        "import sys, time\n"
        "from merging.jobs.bench import Bench, PreviewRequest\n"
        "bench = Bench('cpu')\n"
        "bench.ask('a', PreviewRequest(recipe=sys.argv[1], benchmark=sys.argv[2], store='s'))\n"
        "print(bench.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    words = [sys.executable, "-c", server, request(tiny_benchmark).recipe, str(tiny_benchmark.folder)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        worker = psutil.Process(int(process.stdout.readline()))
        process.kill()
    gone, alive = psutil.wait_procs([worker], timeout=LONG)
    assert gone and not alive


def test_a_process_that_cannot_start_is_an_error(tiny_benchmark, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    state = Bench("cpu").ask("a", request(tiny_benchmark))
    assert state.done and "cannot be started: Resource temporarily unavailable" in state.error
