"""The spare process: one that waits, becomes one job or the process of previews, and is gone when it should be."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import wait_for_end, wait_until

from merging.study.previews.preview_process import PreviewProcess, PreviewRequest
from merging.tasks.queue import child_process
from merging.tasks.queue import spare_process as spare_module
from merging.tasks.queue.child_process import child_environment
from merging.tasks.queue.job_records import JobFiles, State
from merging.tasks.queue.spare_process import PRELOADED_MODULES, SpareProcess

ROOT = Path(__file__).resolve().parents[2]
ONCE = ("-n1", "-r1")  # words of timeit, which runs the code that follows once and so stands for any program
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def light(monkeypatch):
    """Spare processes that load next to nothing."""
    monkeypatch.setattr(spare_module, "PRELOADED_MODULES", ("json", "no_such_module"))


@pytest.fixture
def spare(light):
    made = SpareProcess()
    made.keep_ready()
    yield made
    made.close()
    assert made.pid == 0


def ran(spare, log, code, **environment):
    """The number of the process that has run some code, its exit code, and what it printed."""
    with log.open("wb") as output:
        process = spare.start_command(("timeit", *ONCE, code), child_environment() | environment, output)
    return process.pid, process.wait(60), log.read_text()


def jobs_of(monkeypatch, code):
    """Let jobs run some code, each in what the queue gives them."""

    def start(self, store_root, device, start_command, jobs):
        with (self.folder / "log.txt").open("wb") as output:
            return start_command(("timeit", *ONCE, code), child_environment(), output)

    monkeypatch.setattr(JobFiles, "start", start)


@pytest.mark.parametrize("name", PRELOADED_MODULES)
def test_what_is_loaded_exists(name):
    assert importlib.util.find_spec(name) is not None


def test_it_becomes_what_it_is_asked_for_and_another_one_follows(spare, tmp_path, monkeypatch):
    first = spare.pid
    code = "import os, sys; print(os.environ['A'], 'B' in os.environ, os.getcwd(), sys.argv[0], repr(sys.stdin.read()))"
    monkeypatch.setenv("B", "of the server, for a while")
    pid, ended_with, text = ran(spare, tmp_path / "log", code, A="mine")
    assert (pid, ended_with) == (first, 0)
    assert text.startswith(f"mine True {ROOT} ") and "timeit" in text and "''" in text
    assert spare.pid == 0
    spare.renew()
    assert spare.pid not in (0, first)
    monkeypatch.delenv("B")
    assert " False " in ran(spare, tmp_path / "log", code, A="mine")[2]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [(("timeit", *ONCE, "1 / 0"), 1, "ZeroDivisionError"), (("timeit", *ONCE, "import os; os.abort()"), -6, ""),
     (("merging", "nonsense"), 2, "nonsense"), (("no_such_module",), 1, "no_such_module")],
)  # fmt: skip
def test_it_ends_as_the_module_ends(spare, tmp_path, waits, words, code, says):
    start = spare.start_command if waits else child_process.start_command
    with (tmp_path / "log").open("wb") as output:
        process = start(words, child_environment(), output)
    assert process.wait(60) == code and says in (tmp_path / "log").read_text()


@pytest.mark.parametrize("noticed", [True, False])
def test_one_that_was_killed_while_it_waited_is_missed_by_nobody(spare, tmp_path, noticed):
    killed = spare.pid
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: psutil.Process(killed).status() == psutil.STATUS_ZOMBIE)
    assert not noticed or spare.pid == 0
    pid, code, text = ran(spare, tmp_path / "log", "print('done')")
    assert (pid != killed, code) == (True, 0) and text.startswith("done")


@pytest.mark.full
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_never_reads_its_order_is_replaced(spare, tmp_path, monkeypatch, end):
    waiting = spare.pid
    monkeypatch.setattr(child_process, "ORDER_SECONDS", 60.0 if end == signal.SIGKILL else 0.2)
    os.kill(waiting, signal.SIGSTOP)  # the order is in its pipe, and stays there

    def killed():
        wait_until(lambda: spare.pid == 0)
        os.kill(waiting, end)

    thread = threading.Thread(target=killed)
    thread.start()
    pid, code, text = ran(spare, tmp_path / "log", "print('done')")
    thread.join()
    assert pid != waiting and code == 0 and text.splitlines()[0] == "done" and not psutil.pid_exists(waiting)


@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.full)])
def test_an_order_longer_than_a_pipe_holds_is_read_or_given_to_another_process(spare, tmp_path, monkeypatch, stopped):
    waiting, code = spare.pid, f"print(len({'x' * (1 << 20)!r}))"
    if stopped:
        monkeypatch.setattr(child_process, "ORDER_SECONDS", 0.2)
        os.kill(waiting, signal.SIGSTOP)
        code = "print('done')"  # one word of a new process cannot be that long
    pid, ended_with, text = ran(spare, tmp_path / "log", code, **({"LONG": "x" * 100_000} if stopped else {}))
    assert (pid != waiting, ended_with) == (stopped, 0)
    assert text.splitlines()[0] == ("done" if stopped else str(1 << 20))


def test_after_the_process_of_previews_another_one_follows_by_itself(light, monkeypatch):
    monkeypatch.setattr(spare_module, "WATCH_SECONDS", 0.02)
    made = SpareProcess()
    made.keep_ready()
    first = made.pid
    try:
        process = made.start_answering({"device": "cpu", "idle": 0.01, "nice": 0})
        assert process.pid == first
        wait_until(lambda: made.pid not in (0, first))
        assert list(process.answers()) == [] and process.process.wait(60) == 0
        process.close_pipes()
    finally:
        made.close()


@pytest.mark.parametrize("order", [b"", b'{"command": "timeit"'])
def test_it_ends_in_silence_without_a_whole_order(order):
    command = [sys.executable, "-m", child_process.WAITING_MODULE, "json"]
    done = subprocess.run(command, input=order, cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_threads_are_counted_when_torch_is_loaded(spare, tmp_path):
    waiting = spare.pid
    pid, code, text = ran(
        spare, tmp_path / "log", "import os; print(os.environ['OMP_NUM_THREADS'])", OMP_NUM_THREADS="7"
    )
    assert pid != waiting and code == 0 and text.startswith("7") and not psutil.pid_exists(waiting)


def test_there_is_none_where_memory_is_short(light, monkeypatch):
    monkeypatch.setattr(spare_module, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(spare_module, "free_memory", lambda: spare_module.START_FREE_BYTES - 1)
    made = SpareProcess()
    made.keep_ready()
    assert made.pid == 0
    monkeypatch.setattr(spare_module, "free_memory", lambda: 1 << 40)
    made.renew()
    dropped = made.pid
    assert dropped
    monkeypatch.setattr(spare_module, "free_memory", lambda: spare_module.END_FREE_BYTES - 1)
    wait_until(lambda: not psutil.pid_exists(dropped))
    made.close()


def test_nobody_who_did_not_ask_has_one(runner):
    runner.spare.renew()
    assert runner.spare.pid == 0


@pytest.mark.parametrize(
    "start",
    [
        "child_process.WorkerProcess(('json',), child_process.child_environment())",
        pytest.param(  # it may still load
            "child_process.WorkerProcess(('torch',), child_process.child_environment())", marks=pytest.mark.full
        ),
        "child_process.start_answering({'device': 'cpu', 'idle': 600, 'nice': 0})",
    ],
)
def test_a_process_that_waits_or_answers_ends_with_its_server(start):
    server = (
        f"import time\nfrom merging.tasks.queue import child_process\nprint({start}.pid, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", server], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        waiting = psutil.Process(int(process.stdout.readline()))
        process.kill()
    gone, alive = psutil.wait_procs([waiting], timeout=120)
    assert gone and not alive


def test_every_job_has_a_process_of_its_own(runner, store, light, monkeypatch, tiny_benchmark):
    jobs_of(monkeypatch, "pass")
    runner.spare.keep_ready()
    first = runner.spare.pid
    ids = [runner.submit(plain_recipe(tiny_benchmark, 0.1 * n)).id for n in (1, 2)]  # as two sessions click at once
    for run_id in ids:
        wait_for_end(runner, run_id)
    workers = [JobFiles(store.root / "jobs", run_id).read().worker.pid for run_id in ids]
    assert workers[0] == first and workers[1] != first
    wait_until(lambda: runner.spare.pid)
    assert runner.spare.pid not in workers


def test_a_job_in_it_is_cancelled_and_killed_as_any(runner, store, light, monkeypatch, tiny_benchmark):
    jobs_of(monkeypatch, SLEEP)
    runner.spare.keep_ready()
    ends = {}
    for scaling, end in ((0.1, runner.cancel), (0.2, lambda run_id: os.kill(worker(store, run_id), signal.SIGKILL))):
        run_id = runner.submit(plain_recipe(tiny_benchmark, scaling)).id
        wait_until(lambda run_id=run_id: runner.get(run_id).state == State.RUNNING and worker(store, run_id))
        end(run_id)
        ends[end] = wait_for_end(runner, run_id)
        assert not psutil.pid_exists(worker(store, run_id))
    cancelled, killed = ends.values()
    assert cancelled.state == State.CANCELLED
    assert killed.state == State.FAILED and "It was killed; nothing shows that memory ran out." in killed.error


def worker(store, run_id) -> int:
    return JobFiles(store.root / "jobs", run_id).read().worker.pid


@pytest.mark.full
def test_a_real_merge_and_a_preview_in_spare_processes(runner, store, tiny_benchmark):
    runner.spare.keep_ready()
    waiting = runner.spare.pid
    job = wait_for_end(runner, runner.submit(plain_recipe(tiny_benchmark)).id)
    assert (job.state, worker(store, job.id)) == (State.DONE, waiting)
    assert store.get_run(job.id).scores is not None
    assert "RuntimeWarning" not in (store.root / "jobs" / job.id / "log.txt").read_text()
    waiting = wait_until(lambda: runner.spare.pid)
    bench = PreviewProcess("cpu", start=runner.spare.start_answering)
    recipe, folder = plain_recipe(tiny_benchmark).to_yaml(), str(tiny_benchmark.folder)
    asked = PreviewRequest(recipe=recipe, benchmark=folder, store="s", per_task=2)
    try:
        bench.send_request("a", asked)
        assert bench.pid == waiting
        wait_until(lambda: bench.find_state("a", asked).done)
        assert bench.find_state("a", asked).preview.n == 12
        wait_until(lambda: runner.spare.pid)  # the next one, although no job has ended
    finally:
        bench.close()
