"""Whole tensors on workers: the same file as here, and nothing lost when one dies."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from contexts import context_of

from merging.base.errors import WorkerError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.engine.chain_work import list_separable_tensors
from merging.engine.outputs import StoredSlot, Tally
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.safetensors import encode_tensor
from merging.models.tensor_info import TensorInfo
from merging.recipes.recipe import Recipe
from merging.study.measure import measure
from merging.study.runs import tensor_task
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.worker import last_inputs
from merging.tasks.workers import checking, pools
from merging.tasks.workers.workers import Workers

WIDE = "visual.transformer.resblocks.0.mlp.c_fc.weight"
QUICK = {"wudi": {"steps": 3}}


def chain(benchmark: Benchmark, merge: str, edits: Any = ("lwptv",), **said: Any) -> Recipe:
    return Recipe.build(merge, QUICK.get(merge, {}), edits, benchmark.pretrained, benchmark.experts, **said)


def ran(recipe: Recipe, benchmark: Benchmark, folder: Path, **said: Any) -> Run:
    store = Store(folder, libraries=())
    return execute(recipe, store, benchmark=benchmark, evaluate=False, context=context_of(said), **said)


def alone(recipe: Recipe) -> int:
    """How many tensors of a chain can be computed alone."""
    opened = open_inputs(recipe)
    return len(list_separable_tensors(recipe, opened.pretrained, len(opened.experts)))


def digest(run: Run) -> str:
    """Of the model's file and the tables."""
    files = [*run.model_paths.values(), *sorted(run.path.glob("*.csv"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Callable[[Workers], None]:
    """Makes workers of the test's own those that any text names."""

    def lend(workers: Workers) -> None:
        monkeypatch.setattr(pools, "open_pool", lambda *_: contextlib.nullcontext(workers))

    return lend


@pytest.fixture
def threads(lent: Callable[[Workers], None]) -> Iterator[Workers]:
    """Two workers in this process, where what they do can be changed; they are the ones that any text names."""
    pool, own = ThreadPoolExecutor(2), Workers(Recorded(), 2)
    own.executor.pool = pool  # type: ignore[attr-defined]
    lent(own)
    last_inputs.clear()
    yield own
    pool.shutdown()


class Recorded(Executor):
    """Threads that note what they are asked."""

    def __init__(self) -> None:
        self.pool: ThreadPoolExecutor | None = None
        self.asked: list[str] = []

    def submit(self, function: Any, /, *said: Any, **more: Any) -> Any:
        request = json.loads(said[1])
        if name := request.get("name"):
            self.asked.append(name)
        assert self.pool is not None
        return self.pool.submit(function, *said, **more)


def test_the_largest_go_first_and_small_ones_stay_here(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers
) -> None:
    recipe = chain(tiny_benchmark, "tsv_m")
    there = ran(recipe, tiny_benchmark, tmp_path / "there", workers="threads")
    assert digest(there) == digest(ran(recipe, tiny_benchmark, tmp_path / "here"))
    infos, asked = open_inputs(recipe).pretrained.infos, threads.executor.asked  # type: ignore[attr-defined]
    sizes = [infos[name].nbytes for name in asked]
    assert len(asked) == len(set(asked)) == 9 and sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    for elsewhere in (chain(tiny_benchmark, "ties"), chain(tiny_benchmark, "lot", ())):
        ran(elsewhere, tiny_benchmark, tmp_path / "there", workers="threads")
    assert len(asked) == 9, "in pieces, and with exemplars: here"


@pytest.mark.parametrize("merge", ["iso_cts", "regmean", "model_stock", "task_arithmetic", "emr"])
def test_a_method_says_itself_whether_its_tensors_can_be_computed_alone(tiny_benchmark: Benchmark, merge: str) -> None:
    assert bool(alone(chain(tiny_benchmark, merge, ()))) is (merge == "iso_cts")


def test_workers_on_other_hardware_are_left_alone(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "hardware_name", lambda device: "NVIDIA A100")
    threads.hardware = "CPU AVX2"
    said = list[str]()
    ran(chain(tiny_benchmark, "drm"), tiny_benchmark, tmp_path, workers="threads", warn=said.append)
    assert threads.executor.asked == []  # type: ignore[attr-defined]
    assert said[-1].startswith("The merge is computed here: the workers compute on CPU ")


def test_what_is_merged_again_for_a_measurement_is_merged_here(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers
) -> None:
    run = ran(chain(tiny_benchmark, "iso_c"), tiny_benchmark, tmp_path, keep_model=False)
    store, context = Store(tmp_path, libraries=()), Context("cpu", workers=threads)
    assert measure("drift", store, tiny_benchmark, run.id, context=context).tables
    assert threads.executor.asked == []  # type: ignore[attr-defined]


def test_what_is_another_tensor_is_refused() -> None:
    values, rows = torch.arange(6.0).reshape(2, 3), {"table": [{"tensor": "a", "order": 3, "share": 0.1}]}
    tally = Tally(torch.tensor([5, 5]), torch.tensor([0.1, 1 / 3], dtype=torch.float64))
    raw = tensor_task.write_tensor_file(StoredSlot("a", 0, [values], tally), rows)
    info = TensorInfo((2, 3), torch.float32)
    stored, noted = tensor_task.read_tensor_file(raw, "a", info)
    assert torch.equal(stored.values[0], values) and noted == rows
    assert torch.equal(stored.tally.squared, tally.squared) and torch.equal(stored.tally.kept, tally.kept)
    for name, other in (("b", info), ("a", TensorInfo((3, 2), torch.float32)), ("a", TensorInfo((2, 3), torch.int32))):
        with pytest.raises(WorkerError, match=r"answered with a \[2, 3\] instead of"):
            tensor_task.read_tensor_file(raw, name, other)
    for wrong in (b"", raw[:-1], encode_tensor("a", values, {}), b"\0" * 64):
        with pytest.raises(WorkerError, match="something else than a tensor"):
            tensor_task.read_tensor_file(wrong, "a", info)


def test_the_command_takes_workers(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    file = tmp_path / "recipe.yaml"
    file.write_text(chain(tiny_benchmark, "iso_c").to_yaml(), "utf-8")
    common = ["--no-evaluate", "--device", "cpu"]
    words = ["run", str(file), "--store", str(tmp_path / "a"), *common]
    assert main([*words, "--workers", "threads"]) == exit_codes.DONE
    assert len(threads.executor.asked) == 9  # type: ignore[attr-defined]
    experts = [word for pair in tiny_benchmark.experts.items() for word in ("--expert", "=".join(pair))]
    given = ["merge", "--pretrained", tiny_benchmark.pretrained, *experts, "--merge", "iso_c", *common]
    monkeypatch.setenv("MERGESCOPE_WORKERS", "threads")
    assert main([*given, "--store", str(tmp_path / "b"), "--out", str(tmp_path / "m.safetensors")]) == exit_codes.DONE
    assert len(threads.executor.asked) == 18, capsys.readouterr().err  # type: ignore[attr-defined]
