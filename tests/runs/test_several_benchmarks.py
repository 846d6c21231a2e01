"""Scores of one run on several benchmarks are kept apart."""

from __future__ import annotations

from pathlib import Path

from plain_recipes import plain_recipe

from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


def test_a_store_prefers_scores_on_its_benchmark(
    tmp_path: Path, tiny_benchmark: Benchmark, other_benchmark: Benchmark
) -> None:
    library = Store(tmp_path / "library", libraries=())
    run = execute(
        plain_recipe(tiny_benchmark), library, benchmark=tiny_benchmark, keep_model=False, context=Context(device="cpu")
    )
    own = Store(tmp_path / "own", libraries=())
    assert execute(plain_recipe(tiny_benchmark), own, benchmark=other_benchmark, context=Context("cpu")).id == run.id
    for benchmark in (tiny_benchmark, other_benchmark):
        both = Store(tmp_path / "own", libraries=(tmp_path / "library" / "runs",), benchmark=benchmark.digest)
        assert both.get_run(run.id).benchmark == benchmark.digest
        assert [found.benchmark for found in both.list_runs()] == [benchmark.digest]
    plain = Store(tmp_path / "own", libraries=(tmp_path / "library" / "runs",))
    assert plain.get_run(run.id).benchmark == other_benchmark.digest, "the own one where no benchmark is named"


def test_scores_on_one_benchmark_survive_those_on_another(
    tmp_path: Path, tiny_benchmark: Benchmark, other_benchmark: Benchmark
) -> None:
    root, asked = tmp_path / "store", plain_recipe(tiny_benchmark)

    def at(benchmark: Benchmark) -> Store:
        return Store(root, libraries=(), benchmark=benchmark.digest)

    first = execute(asked, Store(root, libraries=()), benchmark=tiny_benchmark, context=Context(device="cpu"))
    second = execute(asked, Store(root, libraries=()), benchmark=other_benchmark, context=Context(device="cpu"))
    assert second.id == first.id
    for benchmark in (tiny_benchmark, other_benchmark):
        (found,) = at(benchmark).list_runs()
        assert (found.benchmark, found.provenance) == (benchmark.digest, "this machine")
        assert execute(asked, at(benchmark), benchmark=benchmark, context=Context(device="cpu")).id == first.id
        assert found.scores is not None and at(benchmark).get_run(first.id).benchmark == benchmark.digest
    assert not at(tiny_benchmark).get_run(first.id).has_model and at(other_benchmark).get_run(first.id).has_model
    again = execute(asked, at(tiny_benchmark), benchmark=tiny_benchmark, need_model=True, context=Context(device="cpu"))
    assert again.has_model and again.benchmark == tiny_benchmark.digest
    assert at(other_benchmark).get_run(first.id).benchmark == other_benchmark.digest, "kept apart in its turn"
    at(tiny_benchmark).delete(first.id)
    assert [run.benchmark for run in at(other_benchmark).list_runs()] == [other_benchmark.digest]
    assert not at(tiny_benchmark).list_runs()
    at(other_benchmark).delete(first.id)
    assert not at(other_benchmark).has_run(first.id)
