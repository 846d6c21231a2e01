"""From a click on Run to scores, on the bundled benchmark, beside the forward passes alone.

    PYTHONPATH=. python tests/bench/click_to_scores.py [--times 3]

Merges that are not in the library are submitted to the queue of the app, with and without its spare process in turn;
the same models are then evaluated in a warm process. The target is 1.3 times the forward passes and one second more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch

from merging.engine.evaluation.evaluate import evaluate
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.run_queue import RunQueue
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import State

POLL = 0.02  # seconds between two looks at the queue
IDLE = 2  # looks, a second each, at a spare process that computes nothing: it has loaded
RATIO, MORE = 1.3, 1.0


def wait_for_spare(runner: RunQueue) -> None:
    """Have a spare process that has loaded everything."""
    runner.spare.keep_ready()
    idle, last = 0, 0.0
    while idle < IDLE:
        time.sleep(1)
        times = psutil.Process(runner.spare.pid).cpu_times()
        used = times.user + times.system
        idle, last = (idle + 1 if used == last else 0), used


def click(recipe: Recipe, benchmark: Benchmark, spare: bool) -> tuple[float, float]:
    """Seconds from submitting a recipe to its stored scores, and those of the forward passes of the same model."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), libraries=(benchmark.folder / "runs",))
        runner = RunQueue(store)
        try:
            if spare:
                wait_for_spare(runner)
            started = time.perf_counter()
            job = runner.submit(recipe, benchmark=benchmark)
            while (job := runner.get(job.id)).is_live:
                time.sleep(POLL)
            seconds = time.perf_counter() - started
            if job.state != State.DONE:
                raise SystemExit(f"The job ended as {job.state.value}: {job.error}")
            run = store.get_run(job.id)
            model = run.file(next(iter(run.models.values())))
            started = time.perf_counter()
            evaluate(model, benchmark)
            return seconds, time.perf_counter() - started
        finally:
            runner.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3, help="clicks with and without the spare process")
    given = parser.parse_args()
    benchmark = Benchmark.load()
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(given.times):
        for spare in (True, False):
            scaling = 0.3111 + 0.001 * (2 * number + spare)  # none of these is in the library
            models = {"pretrained": benchmark.pretrained, "experts": dict(benchmark.experts)}
            recipe = Recipe.build("task_arithmetic", {"scaling": scaling}, **models)
            found[spare].append(click(recipe, benchmark, spare))
            print(f"{'spare' if spare else 'new'} {found[spare][-1][0]:.2f}", file=sys.stderr, flush=True)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, medians of {given.times}, seconds")
    for spare, rows in found.items():
        total, passes = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median((seconds - MORE) / alone for seconds, alone in rows)
        name = "spare process" if spare else "new process"
        print(
            f"{name:14} {total:6.2f}  forward passes {passes:6.2f}  ratio, {MORE:g} s left out, {ratio:5.2f} "
            f"(at most {RATIO}): {'met' if ratio <= RATIO else 'MISSED'}"
        )


if __name__ == "__main__":
    main()
