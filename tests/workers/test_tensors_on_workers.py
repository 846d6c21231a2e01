"""Whole tensors on workers: the same file as here, and nothing lost when one dies."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from contexts import context_of

from merging.benchmarks.benchmark import Benchmark
from merging.checkpoints.tensor_info import TensorInfo
from merging.cli import exit_codes
from merging.cli.main import main
from merging.engine import run as engine
from merging.engine.outputs import Stored, Tally
from merging.engine.work import one_by_one
from merging.errors import Cancelled, MergingError, WorkerError
from merging.formats.safetensors import file_bytes
from merging.recipes.recipe import Recipe
from merging.runs.estimate import tensor_bytes
from merging.runs.execute import execute
from merging.runs.inputs import open_inputs
from merging.runs.remote import tensor_file, whole_tensors
from merging.runs.run import Run
from merging.runs.store import Store
from merging.tasks.context import Context
from merging.tasks.kinds import TENSOR
from merging.tasks.worker import answered, call, last_inputs, written
from merging.workers import checking, pools
from merging.workers.workers import Workers

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
    return len(one_by_one(recipe, opened.pretrained, len(opened.experts)))


def digest(run: Run) -> str:
    """Of the model's file and the tables."""
    files = [*run.model_paths.values(), *sorted(run.path.glob("*.csv"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Callable[[Workers], None]:
    """Makes workers of the test's own those that any text names."""

    def lend(workers: Workers) -> None:
        monkeypatch.setattr(pools, "opened", lambda spec, warn, device: contextlib.nullcontext(workers))

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


def failing(monkeypatch: pytest.MonkeyPatch, text: str) -> list[str]:
    """Lets the worker fail at ``WIDE``; the tensors that were begun."""
    tensor, begun = engine.OneByOne.tensor, list[str]()

    def fail(self: Any, name: str) -> Any:
        begun.append(name)
        if name == WIDE:
            raise MergingError(text)
        return tensor(self, name)

    monkeypatch.setattr(engine.OneByOne, "tensor", fail)
    return begun


@pytest.mark.parametrize("text", ["It overflows.", f"The merged tensor {WIDE!r} overflows."])
def test_an_error_of_ours_comes_once_with_the_name_of_the_tensor(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    begun = failing(monkeypatch, text)
    with pytest.raises(MergingError) as caught:
        ran(chain(tiny_benchmark, "drm"), tiny_benchmark, tmp_path, workers="threads")
    assert str(caught.value).count(WIDE) == 1 and text in str(caught.value) and begun.count(WIDE) == 1
    assert [path for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")] == []


def test_a_tensor_that_is_too_large_is_told_before(tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers) -> None:
    chosen = chain(tiny_benchmark, "drm")
    needed = tensor_bytes(open_inputs(chosen), [WIDE])
    assert needed > tensor_bytes(open_inputs(chosen), ["visual.proj"])
    threads.memory = needed - 1
    with pytest.raises(WorkerError, match=r"^A tensor needs about .* of memory; the workers have .* each\. Start"):
        ran(chosen, tiny_benchmark, tmp_path, workers="threads")
    assert threads.executor.asked == []  # type: ignore[attr-defined]
    threads.memory = needed
    ran(chosen, tiny_benchmark, tmp_path, workers="threads")


def test_cancel_drops_what_waits_and_waits_for_no_tensor(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, go_on, tensor = threading.Event(), threading.Event(), engine.OneByOne.tensor

    def hold(self: Any, name: str) -> Any:
        stop.set()
        assert go_on.wait(3)
        return tensor(self, name)

    monkeypatch.setattr(engine.OneByOne, "tensor", hold)
    with pytest.raises(Cancelled):
        ran(chain(tiny_benchmark, "drm"), tiny_benchmark, tmp_path, workers="threads", cancel=stop)
    go_on.set()
    assert len(threads.executor.asked) == 4  # type: ignore[attr-defined]
    assert [path for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")] == []


def test_workers_on_other_hardware_are_left_alone(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "hardware", lambda device: "NVIDIA A100")
    said = list[str]()
    ran(chain(tiny_benchmark, "drm"), tiny_benchmark, tmp_path, workers="threads", warn=said.append)
    assert threads.executor.asked == []  # type: ignore[attr-defined]
    assert said[-1].startswith("The merge is computed here: the workers compute on CPU ")


def test_a_worker_refuses_other_files_and_names_a_missing_one(copied: Benchmark) -> None:
    recipe = chain(copied, "tsv_m")
    with whole_tensors.tensors_on_workers(open_inputs(recipe), "1", Context("cpu", warn=print)) as found:
        assert found is not None
        request = written({**found.asked, "name": WIDE})
    assert len(request) < 10_000
    first = answered(call(TENSOR, request))["file"]
    victim = copied.folder / "models" / "digits.safetensors"
    shutil.copy(victim.with_name("circles.safetensors"), victim.with_suffix(".new"))
    victim.with_suffix(".new").replace(victim)
    assert answered(call(TENSOR, request))["file"] == first, "the file that was asked for is still open"
    last_inputs.clear()
    with pytest.raises(WorkerError, match=r"sees other checkpoints or images .* for this tensor"):
        answered(call(TENSOR, request))
    victim.unlink()
    with pytest.raises(WorkerError, match=rf"does not see {victim}; set MERGESCOPE_MODELS there"):
        answered(call(TENSOR, request))
    name, values, _ = tensor_file.tensor_of(first, "it")
    assert name == WIDE and values.dtype == torch.float16


def test_what_is_another_tensor_is_refused() -> None:
    values, rows = torch.arange(6.0).reshape(2, 3), {"table": [{"tensor": "a", "order": 3, "share": 0.1}]}
    tally = Tally(torch.tensor([5, 5]), torch.tensor([0.1, 1 / 3], dtype=torch.float64))
    raw = tensor_file.tensor_file(Stored("a", 0, [values], tally), rows)
    info = TensorInfo((2, 3), torch.float32)
    stored, noted = tensor_file.stored_of(raw, "a", info)
    assert torch.equal(stored.values[0], values) and noted == rows
    assert torch.equal(stored.tally.squared, tally.squared) and torch.equal(stored.tally.kept, tally.kept)
    for name, other in (("b", info), ("a", TensorInfo((3, 2), torch.float32)), ("a", TensorInfo((2, 3), torch.int32))):
        with pytest.raises(WorkerError, match=r"answered with a \[2, 3\] instead of"):
            tensor_file.stored_of(raw, name, other)
    for wrong in (b"", raw[:-1], file_bytes("a", values, {}), b"\0" * 64):
        with pytest.raises(WorkerError, match="something else than a tensor"):
            tensor_file.stored_of(wrong, "a", info)


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
