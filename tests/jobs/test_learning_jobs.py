"""Jobs that learn: they pause, go on from where they were, and keep nothing once they are cancelled."""

from __future__ import annotations

import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import SLEEP, wait_for_end, wait_until

from merging.recipes.recipe import Recipe
from merging.tasks.queue.job_records import State


def learning(benchmark, steps=4):
    params = {"steps": steps, "batch": 4}
    return Recipe.build("adamerging", params, [], benchmark.pretrained, benchmark.experts)


def keep(store, job_id):
    """What a child would have kept of what it has learned."""
    file = store.learning_file(job_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"state")
    return file


@pytest.mark.full
def test_a_job_pauses_and_goes_on(runner, store, tiny_benchmark):
    job = runner.submit(learning(tiny_benchmark, 5000))
    assert job.can_pause
    wait_until(lambda: "step" in runner.get(job.id).detail)
    runner.pause(job.id)
    stopped = wait_for_end(runner, job.id)
    assert stopped.state == State.PAUSED and stopped.is_resumable
    assert store.learning_file(job.id).exists()
    again = runner.submit_again(job.id)
    assert again.is_live
    wait_until(lambda: "step" in runner.get(job.id).detail)
    runner.cancel(job.id)
    assert wait_for_end(runner, job.id).state == State.CANCELLED
    assert not store.learning_file(job.id).exists()


@pytest.mark.parametrize("way", ["cancel", "dismiss"])
def test_nothing_is_kept_of_what_is_cancelled_or_dismissed(runner, store, child, tiny_benchmark, way):
    child(SLEEP)
    job = runner.submit(learning(tiny_benchmark))
    kept = keep(store, job.id)
    runner.cancel(job.id)
    stopped = wait_for_end(runner, job.id)
    assert stopped.state == State.CANCELLED and not stopped.is_resumable
    if way == "dismiss":
        keep(store, job.id)
        runner.dismiss(job.id)
    assert not kept.exists()


def test_the_points_of_a_cancelled_sweep_are_kept_if_it_had_begun(runner, child):
    child(SLEEP)
    first, second = (runner.submit_sweep(digit * 12, "A sweep").id for digit in "ab")
    wait_until(lambda: runner.get(first).state == State.RUNNING)
    runner.cancel(second)
    runner.cancel(first)
    assert wait_for_end(runner, first).is_resumable and not wait_for_end(runner, second).is_resumable


FORGETFUL = """
import pathlib, signal, sys, time
def forget(*_):
    for file in pathlib.Path({!r}).iterdir():
        file.unlink()
    sys.exit(130)
signal.signal(signal.SIGTERM, forget)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_closing_server_does_not_make_what_learns_forget(runner, store, child, tiny_benchmark):
    child(FORGETFUL.format(str(store.root / "learning")))
    job = runner.submit(learning(tiny_benchmark))
    kept = keep(store, job.id)
    wait_until(lambda: (log := store.root / "jobs" / job.id / "log.txt").exists() and "ready" in log.read_text())
    runner.close()
    assert runner.get(job.id).state == State.INTERRUPTED
    assert "continues from there" in runner.get(job.id).error
    assert kept.exists()


def test_only_what_learns_can_pause(runner, child, tiny_benchmark):
    child(SLEEP)
    plain = runner.submit(plain_recipe(tiny_benchmark))
    wait_until(lambda: runner.get(plain.id).state == State.RUNNING)
    assert not plain.can_pause
    runner.pause(plain.id)
    assert runner.get(plain.id).state == State.RUNNING
