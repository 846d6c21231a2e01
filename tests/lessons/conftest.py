"""What the tests of lessons share: a lesson on the bundled benchmark with runs to name, and its library."""

from __future__ import annotations

from pathlib import Path

import pytest
from lesson_text import LESSON

from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.teaching.lesson_context import LessonContext
from merging.teaching.lesson_files import parse_lesson


@pytest.fixture(scope="session")
def benchmark_bundled() -> Benchmark:
    return Benchmark.load()


@pytest.fixture(scope="session")
def small(benchmark_bundled: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> LessonContext:
    """A lesson with names for two runs and a sweep, on the bundled library and an empty store."""
    store = Store(tmp_path_factory.mktemp("store"), benchmark=benchmark_bundled.digest)
    return LessonContext(store, benchmark_bundled, parse_lesson(LESSON, Path("small.yaml")))
