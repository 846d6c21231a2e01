"""The images of a preview: seeded, nested, balanced, of the choosing half only."""

from __future__ import annotations

import numpy as np
import pytest

from merging.base.errors import ParameterError
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.previews import preview_samples
from merging.study.previews.preview_samples import PreviewSample, image_batches, sample_tasks


def labels_of(counts: list[int]) -> np.ndarray:
    return np.random.default_rng(3).permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int64)


@pytest.mark.parametrize("counts", [[5, 5, 5], [12, 1, 3], [1] * 40, [7]])
def test_every_draw_holds_the_smaller_ones(counts):
    labels = labels_of(counts)
    whole = PreviewSample(None, 5).sample_order(labels)
    assert sorted(whole) == list(range(len(labels)))
    for size in range(1, len(labels) + 1):
        assert (PreviewSample(size, 5).sample_order(labels) == whole[:size]).all()


@pytest.mark.parametrize("counts", [[5, 5, 5], [12, 1, 3], [1] * 40])
def test_classes_come_in_turns(counts):
    labels = labels_of(counts)
    for size in range(1, len(labels) + 1):
        drawn_counts = np.bincount(labels[PreviewSample(size).sample_order(labels)], minlength=len(counts))
        left = np.array(counts) > drawn_counts
        if left.any():
            assert drawn_counts.max() - drawn_counts[left].min() <= 1


def test_the_seed_chooses():
    labels = labels_of([20, 20])
    orders = [tuple(PreviewSample(10, seed).sample_order(labels)) for seed in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]


def test_stages_grow_to_the_sample():
    assert [s.per_task for s in PreviewSample(None, 2).stages()] == [8, 16, 32, 64, None]
    assert [s.per_task for s in PreviewSample(20).stages()] == [8, 16, 20]
    assert PreviewSample(8).stages() == (PreviewSample(8),)


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, "8"])
def test_what_is_no_number_of_images_is_refused(bad):
    with pytest.raises(ParameterError, match="per_task"):
        PreviewSample(bad)
    with pytest.raises(ParameterError, match="seed"):
        PreviewSample(8, -1)


def test_only_the_choosing_half_is_read(tiny_benchmark, monkeypatch):
    asked = []
    read = Benchmark.load_images
    monkeypatch.setattr(Benchmark, "load_images", lambda own, key, split: asked.append(split) or read(own, key, split))
    sampled = sample_tasks(tiny_benchmark, PreviewSample(3))
    assert set(asked) == {"choosing"} and preview_samples.HALF == "choosing"
    for key, task in sampled.items():
        images, labels = read(tiny_benchmark, key, "choosing")
        assert (task.images == images[task.positions]).all() and (task.labels == labels[task.positions]).all()


def test_batches_hold_every_image_once(tiny_benchmark, monkeypatch):
    monkeypatch.setattr(preview_samples, "BATCH_SIZE", 7)
    sampled = sample_tasks(tiny_benchmark, PreviewSample(6))
    seen = {key: [] for key in sampled}
    keys = set()
    for start, stop in ((0, 4), (4, None)):
        for batch in image_batches(sampled, list(sampled), start, stop, "b"):
            assert len(batch.images) <= 7
            keys.add(batch.key)
            for key, span, first in batch.parts:
                places = list(range(first, first + span.stop - span.start))
                seen[key] += places
                assert (batch.images[span] == sampled[key].images[places]).all()
    assert seen == {key: list(range(len(task.labels))) for key, task in sampled.items()}
    again = [
        b.key for start, stop in ((0, 4), (4, None)) for b in image_batches(sampled, list(sampled), start, stop, "b")
    ]
    assert len(again) == len(keys) and set(again) == keys
