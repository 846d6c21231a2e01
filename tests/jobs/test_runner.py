"""The queue of child processes: order, cancel, death, commands. Most children here are stand-ins that start quickly."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import EVENT, LEAVE, SLEEP, STUBBORN, child_command, wait_for_end, wait_until

from merging.base import free_memory
from merging.base.errors import CheckpointError, ModeError, StoreError
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.tasks.context import Context
from merging.tasks.queue import child_process
from merging.tasks.queue.job_records import JobFiles, State


@pytest.mark.full
def test_a_real_merge_ends_up_in_the_store(runner, store, tiny_benchmark):
    job = runner.submit(plain_recipe(tiny_benchmark))
    assert runner.submit(plain_recipe(tiny_benchmark)).id == job.id
    done = wait_for_end(runner, job.id)
    assert (done.state, done.error, done.fraction, done.position) == (State.DONE, "", 1.0, 0)
    assert store.get_run(done.subject).scores is not None
    assert runner.submit(plain_recipe(tiny_benchmark)).submitted == job.submitted
    events = [json.loads(line) for line in (store.root / "jobs" / job.id / "events.jsonl").read_text().splitlines()]
    assert (set(events[0]), events[-1]) == ({"worker"}, {"code": 0})
    assert all(0 <= event["fraction"] <= 1 for event in events[1:-1])
    assert {"Reading checkpoints", "Evaluating"} <= {event["phase"] for event in events[1:-1]}
    store.delete(job.id)
    assert runner.list_jobs() == []


def test_what_is_stored_is_done_at_once(runner, store, child, tiny_benchmark):
    child("raise SystemExit('not to be started')")
    run = execute(plain_recipe(tiny_benchmark), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    job = runner.submit(plain_recipe(tiny_benchmark))
    assert (job.id, job.state, job.fraction) == (run.id, State.DONE, 1.0)
    assert runner.get(run.id).state == State.DONE


def test_a_run_without_scores_is_not_done_unless_it_cannot_have_any(runner, store, child, tiny_benchmark):
    child(SLEEP)
    execute(plain_recipe(tiny_benchmark, 0.1), store, evaluate=False, context=Context(device="cpu"))
    assert runner.submit(plain_recipe(tiny_benchmark, 0.1)).is_live
    bigger = replace(tiny_benchmark, image_size=32)
    execute(plain_recipe(tiny_benchmark, 0.2), store, benchmark=bigger, context=Context(device="cpu"))
    assert runner.submit(plain_recipe(tiny_benchmark, 0.2)).state == State.DONE


def test_progress_is_read_from_the_events(runner, store, child, tiny_benchmark):
    child(SLEEP, EVENT)
    job = runner.submit(plain_recipe(tiny_benchmark))
    job = wait_until(
        lambda: (found := runner.get(job.id)).state == State.RUNNING and found.phase == "Merging" and found
    )
    assert (job.detail, job.fraction, job.seconds_left) == ("a tensor", 0.25, 3.0)
    with (store.root / "jobs" / job.id / "events.jsonl").open("a") as file:
        file.write('{"phase": "Evaluating", "fraction": 0.5}\n{"phase": "half a li')
    assert runner.get(job.id).phase == "Evaluating"
    with (store.root / "jobs" / job.id / "events.jsonl").open("a") as file:
        file.write('\n{"code": 0}\n')
    assert runner.get(job.id).phase == "Ending"


def test_one_at_a_time_in_order(runner, child, tiny_benchmark):
    child(SLEEP)
    ids = [runner.submit(plain_recipe(tiny_benchmark, 0.1 * n)).id for n in range(1, 4)]
    assert [job.id for job in runner.list_jobs()] == ids[::-1]
    assert [job.id for job in runner.list_jobs({ids[0], "none"})] == [ids[0]]
    wait_until(lambda: runner.get(ids[0]).state == State.RUNNING)
    assert [runner.get(i).position for i in ids] == [0, 1, 2]
    runner.cancel(ids[1])
    assert [runner.get(i).state for i in ids] == [State.RUNNING, State.CANCELLED, State.QUEUED]
    assert runner.get(ids[2]).position == 1
    runner.cancel(ids[0])
    wait_until(lambda: runner.get(ids[2]).state == State.RUNNING)
    assert runner.get(ids[0]).state == State.CANCELLED
    runner.cancel(ids[0])  # has ended: nothing happens
    assert runner.get(ids[2]).state == State.RUNNING


def test_a_deaf_child_is_killed_in_three_seconds(runner, child, store, tiny_benchmark, monkeypatch):
    monkeypatch.setattr(child_process, "STOP_SECONDS", 0.5)
    child(STUBBORN)
    job = runner.submit(plain_recipe(tiny_benchmark))
    wait_until((store.root / "jobs" / job.id / "log.txt").exists)
    wait_until(lambda: "deaf" in (store.root / "jobs" / job.id / "log.txt").read_text())
    started = time.monotonic()
    runner.cancel(job.id)
    assert time.monotonic() - started < 0.2  # whoever asks does not wait
    assert wait_for_end(runner, job.id).state == State.CANCELLED
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "code,error",
    [
        ("import os; os.kill(os.getpid(), 9)", "It was killed; nothing shows that memory ran out."),
        ("raise SystemExit(3)", "ended with code 3; see log.txt"),
        ("", "ended with code 0, but its run is not stored"),  # a child that says it is done, but there is no run
    ],
)
def test_how_a_child_dies_is_said(runner, child, tiny_benchmark, code, error):
    child(code)
    job = wait_for_end(runner, runner.submit(plain_recipe(tiny_benchmark)).id)
    assert job.state == State.FAILED
    assert error in job.error


@pytest.mark.parametrize("shown", ["counted", "low"])
def test_a_killed_child_ran_out_of_memory_where_that_is_likely(
    runner, child, tiny_benchmark, tmp_path, monkeypatch, shown
):
    """The system has counted a process that it killed for memory, or hardly any memory was free."""
    counts = tmp_path / "vmstat"
    counts.write_text("nr_free_pages 7\noom_kill 3\n")
    monkeypatch.setattr(free_memory, "MACHINE_COUNTERS_FILE", counts)
    if shown == "low":
        monkeypatch.setattr(free_memory, "free_memory", lambda: free_memory.LOW_MEMORY_BYTES - 1)
    write = f"open({str(counts)!r}, 'w').write('oom_kill 4')" if shown == "counted" else "import time; time.sleep(0.5)"
    child(f"{write}; import os; os.kill(os.getpid(), 9)")
    job = wait_for_end(runner, runner.submit(plain_recipe(tiny_benchmark)).id)
    assert "killed, likely because the computer ran out of memory" in job.error


def test_a_failure_gives_the_childs_own_sentence_and_can_be_tried_again(runner, child, tiny_benchmark):
    child("raise SystemExit(1)", {"error": "Two tensors do not fit.", "code": 1})
    job = wait_for_end(runner, runner.submit(plain_recipe(tiny_benchmark)).id)
    assert (job.state, job.error) == (State.FAILED, "Two tensors do not fit.")
    child(SLEEP)
    again = runner.submit(plain_recipe(tiny_benchmark))
    assert again.id == job.id
    assert again.is_live
    assert again.error == ""


def test_what_a_killed_child_left_is_swept(runner, child, store, tiny_benchmark):
    leave = LEAVE.format(str(store.root / "runs")) + "; import os; os.kill(os.getpid(), 9)"
    child(leave)
    wait_for_end(runner, runner.submit(plain_recipe(tiny_benchmark)).id)
    assert list((store.root / "runs").iterdir()) == []


def test_bad_input_is_refused_at_once(runner, tiny_benchmark):
    recipe = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, {"x": "no such file.safetensors"})
    with pytest.raises(CheckpointError, match="not found"):
        runner.submit(recipe)
    assert runner.list_jobs() == []
    with pytest.raises(StoreError, match="There is no job"):
        runner.get("f" * 12)


def test_the_child_gets_all_cores_once_and_starts_elsewhere(store, monkeypatch):
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", "relative")
    files = JobFiles(store.root / "jobs", "a" * 12)
    files.create("merge: ties\n", title="A job", base=Path("/"), subject="a" * 12)
    _, found = child_command(files, store, monkeypatch)
    assert int(found["OMP_NUM_THREADS"]) == len(os.sched_getaffinity(0))
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.path.isabs(found["MERGESCOPE_BENCHMARK"])  # noqa: PTH117


def test_a_command_is_a_job_with_its_own_words(runner, store, child, monkeypatch):
    child("pass")
    words = ("export", "0" * 12, "--out", "/x")
    job = runner.submit_command("export-hf", "0" * 12, "An export", words)
    assert (job.subject, job.kind, job.words) == ("0" * 12, "export-hf", words)
    assert wait_for_end(runner, job.id).state == State.DONE
    command, _ = child_command(JobFiles(store.root / "jobs", job.id), store, monkeypatch)
    assert command[1 : 3 + len(words)] == ["-m", "merging", *words] and "--device" not in command


@pytest.mark.parametrize("fails", [False, True])
def test_a_recipe_follows_its_command_only_if_that_is_done(runner, child, tiny_benchmark, fails):
    child("raise SystemExit(1)" if fails else "pass")
    job = runner.submit_command("read", "a" * 12, "Reading", ["digest"], then=plain_recipe(tiny_benchmark))
    assert wait_for_end(runner, job.id).state == (State.FAILED if fails else State.DONE)
    assert [job.title for job in runner.list_jobs() if job.kind == "merge"] == ([] if fails else ["task_arithmetic"])


ORDERED = ["drift", "along_steps", "features"]  # the second needs a table that the run lacks


@pytest.mark.parametrize("ordered,measured", [(ORDERED, {"drift", "features"}), ([], set())])
def test_measurements_follow_a_run_unless_they_are_cancelled(
    runner, store, child, tiny_benchmark, tmp_path, ordered, measured
):
    gate = tmp_path / "go on"
    child(f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)")
    recipe = plain_recipe(tiny_benchmark)
    job = runner.submit(recipe, benchmark=tiny_benchmark, session="mine")
    runner.order_measurements(job.id, ORDERED, "mine")
    assert runner.get(job.id).followed_by == {"mine": ORDERED}
    runner.order_measurements(job.id, ordered, "mine")  # again, or none
    execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    gate.touch()
    done = wait_for_end(runner, job.id)
    assert (done.state, done.error, done.followed_by) == (State.DONE, "", {})
    following = [job for job in runner.list_jobs() if job.kind != "merge"]
    assert {job.kind for job in following} == measured
    assert {(job.subject, job.benchmark) for job in following} <= {(done.subject, str(tiny_benchmark.folder))}
    assert {job.id for job in following} <= runner.list_awaited_jobs("mine")  # its tray lists them


def test_a_run_that_failed_is_measured_when_it_is_tried_again(runner, store, child, tiny_benchmark):
    child("raise SystemExit(3)")
    recipe = plain_recipe(tiny_benchmark)
    job = runner.submit(recipe, benchmark=tiny_benchmark)
    runner.order_measurements(job.id, ["drift"])
    assert wait_for_end(runner, job.id).state == State.FAILED
    execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    child("")
    runner.submit_again(job.id)
    assert wait_for_end(runner, job.id).state == State.DONE
    assert {job.kind for job in runner.list_jobs()} == {"merge", "drift"}


def test_what_is_ordered_when_the_run_ends_is_not_forgotten(runner, store, child, tiny_benchmark):
    child("")
    recipe = plain_recipe(tiny_benchmark)
    execute(recipe, store, evaluate=False, context=Context(device="cpu"))
    job = runner.submit(recipe, benchmark=tiny_benchmark)
    wait_for_end(runner, job.id)
    execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    runner.order_measurements(job.id, ["drift"])
    assert {job.kind for job in runner.list_jobs()} == {"merge", "drift"}


@pytest.fixture
def gated(runner, store, child, tiny_benchmark, tmp_path):
    """A merge of "mine" and "yours" that computes until the returned function ends it, with its run stored."""
    gate = tmp_path / "go on"
    child(f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)")
    recipe = plain_recipe(tiny_benchmark)
    job = runner.submit(recipe, benchmark=tiny_benchmark, session="mine")
    runner.submit(recipe, benchmark=tiny_benchmark, session="yours")
    execute(recipe, store, benchmark=tiny_benchmark, context=Context(device="cpu"))

    def end():
        gate.touch()
        return wait_for_end(runner, job.id)

    return job, end


@pytest.mark.parametrize("yours", [[], ["features"]])
def test_a_session_changes_and_gets_only_its_own_order(runner, gated, yours):
    job, end = gated
    runner.order_measurements(job.id, ["drift"], "mine")
    runner.order_measurements(job.id, ["features"], "yours")
    runner.order_measurements(job.id, yours, "yours")
    assert end().error == ""
    assert runner.list_awaited_jobs("mine") == {job.id, f"drift-{job.subject}"}
    assert runner.list_awaited_jobs("yours") == {job.id, *(f"{key}-{job.subject}" for key in yours)}


def test_who_leaves_a_run_takes_the_own_order_along(runner, gated):
    job, end = gated
    runner.order_measurements(job.id, ["drift"], "mine")
    runner.order_measurements(job.id, ["features"], "yours")
    runner.cancel(job.id, "yours")
    end()
    assert {job.kind for job in runner.list_jobs()} == {"merge", "drift"}


@pytest.mark.parametrize("late", [False, True])
def test_a_job_says_why_an_ordered_measurement_was_refused(runner, gated, monkeypatch, late):
    def refuse(*_):
        raise ModeError("your share is used up")

    job, end = gated
    monkeypatch.setattr(runner, "submit_measurement", refuse)
    if late:
        end()
    runner.order_measurements(job.id, ["drift"], "mine")
    done = end()
    assert (done.state, done.error) == (State.DONE, "Feature drift: your share is used up")


def test_what_is_ordered_while_the_job_ends_says_why_it_was_refused(runner, gated, monkeypatch):
    job, end = gated
    submit_following = runner._submit_following

    def order_afterwards(files):
        ended = submit_following(files)
        monkeypatch.setattr(runner, "_submit_following", submit_following)
        files.order_measurements(["drift"], "mine")
        return ended

    monkeypatch.setattr(runner, "_submit_following", order_afterwards)
    monkeypatch.setattr(runner, "_measure_run", lambda *_: "your share is used up")
    end()
    assert wait_until(lambda: runner.get(job.id).error) == "your share is used up"


def test_a_run_that_is_deleted_before_its_measurements_does_not_fail(runner, store):
    assert "0" * 12 in runner._measure_run("0" * 12, {"mine": ["drift"]}, "")


def test_orders_and_submissions_take_turns(runner, gated):
    job, _ = gated
    with runner._submission_lock():
        ordering = threading.Thread(target=runner.order_measurements, args=(job.id, ["drift"], "mine"))
        ordering.start()
        ordering.join(0.2)
        assert ordering.is_alive() and not runner._files(job.id).list_ordered()
    ordering.join()
    assert runner._files(job.id).list_ordered() == {"mine": ["drift"]}


def test_a_recipe_that_cannot_follow_says_why(runner, child, tmp_path):
    child("pass")
    gone = Recipe.build("ties", {}, [], str(tmp_path / "gone.safetensors"), {"a": "x"})
    job = wait_for_end(runner, runner.submit_command("read", "a" * 12, "Reading", ["digest"], then=gone).id)
    assert job.state == State.FAILED
    assert "gone.safetensors: not found" in job.error


def test_what_a_cancelled_export_leaves_is_removed(runner, store, child, tmp_path):
    out = tmp_path / "exports" / "model"
    leave = LEAVE.format(str(out.parent)).replace("print", "there = ")
    child(f"{leave}; (there / 'weights').write_text('half'); import time; time.sleep(60)")
    job = runner.submit_command("export-hf", "0" * 12, "An export", ["export", "0" * 12, "--out", str(out)])
    wait_until(lambda: list(out.parent.glob("*/weights")))
    runner.cancel(job.id)
    assert wait_for_end(runner, job.id).state == State.CANCELLED
    assert list(out.parent.iterdir()) == []
