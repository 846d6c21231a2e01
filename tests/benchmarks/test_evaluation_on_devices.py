"""Evaluation on an accelerator: each input copied once, read ahead, and what happens where its memory runs out."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch
from pretend_device import NAME, pretend_device

from merging.engine.evaluation.evaluate import evaluate
from merging.engine.evaluation.image_features import compute_features
from merging.images import batch_sizes
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_store import MEMORY_NOTE
from merging.study.measure import measure
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

SMALLER = "PRETEND ran out of memory, so pieces were 1/4 of the usual size."
ON_CPU = "PRETEND ran out of memory even with small pieces, so the CPU computed this."


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of an allocation, enough for 8 images at a time, of which 32 would run."""
    monkeypatch.setattr(batch_sizes, "GPU_TOKENS", 32 * tiny.TOKENS)
    return 8 * 3 * tiny.SIZE**2 * torch.float32.itemsize


def test_every_input_is_copied_once_and_the_features_of_each_batch(tiny_benchmark: Benchmark) -> None:
    model = open_checkpoint(tiny_benchmark.pretrained)
    expected = evaluate(model, tiny_benchmark, context=Context(device="cpu"))
    with pretend_device() as copied:
        scores = evaluate(model, tiny_benchmark, context=Context(device=NAME))
    assert scores.equals(expected)
    weights = [model.infos[name].numel for parts in Encoder.from_checkpoint(model).names.values() for name in parts]
    images = [n * 3 * tiny.SIZE**2 for n in scores["n"]]
    assert copied.to_device == [*weights, *images]
    assert copied.to_host == [n * tiny.EMBED for n in scores["n"]]


def test_the_next_images_are_prepared_before_anybody_waits_for_features(
    tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sizes, "GPU_TOKENS", 8 * tiny.TOKENS)
    images, _ = tiny_benchmark.load_images("digits", "choosing")
    model = open_checkpoint(tiny_benchmark.pretrained)
    expected = compute_features(Encoder.from_checkpoint(model), images, prepare=tiny_benchmark.preprocess)
    read = []
    with pretend_device() as copied:
        encoder = Encoder.from_checkpoint(model, NAME)

        def prepare(some: object) -> torch.Tensor:
            read.append(len(copied.to_host))
            return tiny_benchmark.preprocess(some)

        rows = compute_features(encoder, images, prepare=prepare)
    assert len(images) == 20 and read == [0, 0, 1]
    torch.testing.assert_close(rows, expected)


def test_without_memory_batches_get_smaller_and_the_caller_is_told(tiny_benchmark: Benchmark, limit: int) -> None:
    expected = evaluate(tiny_benchmark.pretrained, tiny_benchmark, context=Context(device="cpu"))
    for largest, sentence in ((limit, SMALLER), (limit >> 10, ON_CPU)):
        told: list[str] = []
        with pretend_device(largest=largest) as memory:
            scores = evaluate(tiny_benchmark.pretrained, tiny_benchmark, context=Context(device=NAME, warn=told.append))
        assert memory.refused and told == [sentence]
        assert scores.equals(expected)


def test_runs_and_measurements_keep_what_was_told(tiny_benchmark: Benchmark, limit: int, tmp_path: Path) -> None:
    store = Store(tmp_path / "store", libraries=())
    recipe = Recipe.build("task_arithmetic", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    execute(recipe, store, benchmark=tiny_benchmark, evaluate=False, context=Context(device="cpu"))
    with pretend_device(largest=limit):
        run = execute(recipe, store, benchmark=tiny_benchmark, context=Context(device=NAME))
        assert run.warnings == (SMALLER,)
        measured = measure("features_in_domain", store, tiny_benchmark, run.id, context=Context(device=NAME))
    assert measured.notes[MEMORY_NOTE] == SMALLER and measured.device == NAME.upper()
    with pretend_device(largest=limit >> 10):
        measured = measure("features", store, tiny_benchmark, run.id, context=Context(device=NAME))
    assert measured.notes[MEMORY_NOTE] == ON_CPU and measured.device == "CPU"
