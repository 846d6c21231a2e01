"""What the tests of lessons share: a lesson on the bundled benchmark with runs to name, and its library."""

from __future__ import annotations

from pathlib import Path

import pytest

from merging.benchmarks.benchmark import Benchmark
from merging.lessons.context import LessonContext
from merging.lessons.reading import parse
from merging.runs.store import Store

LESSON = """
version: 1
key: small
title: A small lesson
question: Why?
minutes: 5
level: introductory
runs:
  ta: {preset: task_arithmetic}
  lw: {preset: task_arithmetic_lwptv}
  chained: {chain: "lwptv;task_arithmetic:scaling=0.3"}
  nowhere: {chain: "task_arithmetic:scaling=0.123"}
  lam: {sweep: task_arithmetic.scaling}
facts:
  before: {fact: accuracy, run: ta, over: out}
  kept: {fact: kept, run: lw, of: scalars}
steps:
- kind: do
  page: masks
  view: {run: "@lw", ratio: 0.7, shared: true}
  chart: saliency_matrix
  say: "Out of domain it is {before}, with {kept} of the scalars."
  goal: {fact: kept_now, of: scalars, between: [0, 0.5]}
  hint: "More."
  show: {ratio: 0.9}
"""


@pytest.fixture(scope="session")
def benchmark_bundled() -> Benchmark:
    return Benchmark.load()


@pytest.fixture(scope="session")
def small(benchmark_bundled: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> LessonContext:
    """A lesson with names for two runs and a sweep, on the bundled library and an empty store."""
    store = Store(tmp_path_factory.mktemp("store"), benchmark=benchmark_bundled.digest)
    return LessonContext(store, benchmark_bundled, parse(LESSON, Path("small.yaml")))
