"""Where one coordinator saturates: a sweep on 1 to 100 workers that are only pretended, with its real store.

    python tests/bench/many_workers.py                       # 1, 10, 100 workers; points of 5 s and of nothing
    python tests/bench/many_workers.py --points 4000

A pretended worker answers after so many seconds with made-up scores, and computes nothing, so that only what this
program does for each point is left: plan, request, answer, and a stored point with its syncs. It prints points a
second, what part of the workers' time was used, CPU ms and bytes a point, and how many units were in flight. With
``requirements-workers.txt`` installed, empty units go through a scheduler of Dask with two processes.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
import tempfile
import threading
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Axis, Sweep
from merging.study.sweeps.sweep_session import SweepSession, plan_sweep, run_sweep
from merging.tasks.context import Context
from merging.tasks.kinds import ABOUT
from merging.tasks.workers.workers import Workers


class Pretended(Executor):
    """So many workers, each of which takes so many seconds for a unit; ``answer`` is a point under another name."""

    def __init__(self, count: int, seconds: float, answer: dict[str, Any]) -> None:
        self._free, self._seconds, self._answer = [0.0] * count, seconds, answer
        self._due: list[tuple[float, int, Future[bytes], bytes]] = []
        self._changed, self._over = threading.Condition(), False
        self.flying = self.most = self.nbytes = self.number = 0
        threading.Thread(target=self._answer_all, daemon=True).start()

    def submit(self, _call: Any, /, _unit: str, request: bytes) -> Future[bytes]:  # type: ignore[override]
        """A future that is done when the first free worker has taken its time."""
        future: Future[bytes] = Future()
        with self._changed:
            due = max(heapq.heappop(self._free), time.monotonic()) + self._seconds
            heapq.heappush(self._free, due)
            self.number += 1
            heapq.heappush(self._due, (due, self.number, future, request))
            self.flying += 1
            self.most = max(self.most, self.flying)
            self._changed.notify()
        return future

    def _answer_all(self) -> None:
        while not self._over:
            with self._changed:
                left = self._due[0][0] - time.monotonic() if self._due else 1.0
                if not self._due or left > 0:
                    self._changed.wait(left)
                    continue
                _, _, future, request = heapq.heappop(self._due)
                self.flying -= 1
            said = json.dumps({"answer": self._answer | {"name": json.loads(request)["name"]}}).encode()
            self.nbytes += len(request) + len(said)
            future.set_result(said)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Answer nothing more."""
        self._over = True


def described(benchmark: Benchmark, points: int) -> Sweep:
    """A map of two parameters with about so many points."""
    recipe = find_preset("task_arithmetic_lwptv").recipe(benchmark.pretrained, benchmark.experts)
    values = tuple(float(value) for value in np.linspace(0.01, 0.99, math.isqrt(points)))
    axes = (Axis("lwptv.prune_ratio", values), Axis("task_arithmetic.scaling", values))
    return Sweep(recipes=(recipe,), axes=axes, images=16, most=points)


def simulated(benchmark: Benchmark, made: Sweep, answer: dict[str, Any], count: int, seconds: float) -> None:
    """Print a line: the sweep on so many workers."""
    pool = Pretended(count, seconds, answer)
    with tempfile.TemporaryDirectory() as folder:
        started, cpu = time.monotonic(), time.process_time()
        store = Store(Path(folder), libraries=())
        run_sweep(made, store, benchmark, context=Context(warn=print, workers=Workers(pool, count)))
        wall, cpu = time.monotonic() - started, time.process_time() - cpu
    pool.shutdown()
    points = pool.number
    used = points * seconds / count / wall
    print(
        f"{count:>4} workers  {seconds:4.1f} s a point  {points:>6,} points  {points / wall:8.1f} a second  "
        f"{100 * used:5.1f} % of the workers' time  {1000 * cpu / points:6.2f} CPU ms, {pool.nbytes / points:,.0f} "
        f"bytes a point  at most {pool.most} in flight",
        flush=True,
    )


def engine(count: int) -> None:
    """Print what a unit that does little costs where Dask carries it."""
    from concurrent.futures import wait

    from distributed import Client, LocalCluster

    from merging.tasks.worker import answer_request

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        executor = client.get_executor(pure=False)
        wait([executor.submit(answer_request, ABOUT, b"{}") for _ in range(4)])  # both have loaded what they need
        started, flying = time.monotonic(), set[Any]()
        for _ in range(count):
            flying.add(executor.submit(answer_request, "none", b"{}"))
            while len(flying) >= 200:  # the window of 100 workers
                flying -= wait(flying, return_when="FIRST_COMPLETED").done
        wait(flying)
        print(f"Dask, two processes, 200 in flight: {1000 * (time.monotonic() - started) / count:.2f} ms an empty unit")


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--seconds", type=float, nargs="+", default=[5.0, 0.0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100])
    asked = parser.parse_args()
    benchmark = Benchmark.load()
    made = described(benchmark, asked.points)
    session = SweepSession(benchmark, made.sample, Context("cpu"))
    point, about = session.compute(plan_sweep(made, benchmark)[0], session.context)
    answer = point.to_plain() | {"about": about}
    for seconds in asked.seconds:
        for count in asked.workers:
            if asked.points * seconds / count < 200:  # one worker would take hours
                simulated(benchmark, made, answer, count, seconds)
    try:
        engine(asked.points)
    except ImportError:
        print("Dask is not installed: pip install -r requirements-workers.txt")


if __name__ == "__main__":
    main()
