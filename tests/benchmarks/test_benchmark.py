"""A benchmark's images, heads and digest against plain arithmetic; what does not belong together is refused."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from merging.base.errors import TaskError
from merging.base.files.npz import Npz
from merging.engine.evaluation.evaluate import evaluate
from merging.engine.evaluation.feature_file import FeatureFile
from merging.engine.evaluation.image_features import compute_features, cosines, predict
from merging.images.benchmarks import benchmark as benchmark_file
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.tasks.context import Context


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny benchmark that a test may change."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "benchmark"))


def change(folder: Path, task: str, **arrays: np.ndarray) -> Benchmark:
    """The benchmark with other arrays in one task's file."""
    path = folder / "data" / f"{task}.npz"
    with np.load(path) as stored:
        np.savez(path, **dict(stored) | arrays)
    return Benchmark.load(folder)


def test_images_are_centered_and_scaled_channel_by_channel(tiny_benchmark: Benchmark) -> None:
    mean, std = (0.1, 0.5, 0.7), (0.2, 0.25, 2.0)
    odd = dataclasses.replace(tiny_benchmark, mean=mean, std=std)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    expected = np.stack([(pixels[..., c] / 255 - mean[c]) / std[c] for c in range(3)], axis=1)
    np.testing.assert_allclose(odd.preprocess(pixels).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"choosing_images": np.zeros((20, 16, 16, 3), np.float32)}, "uint8 images and n labels; got float32"),
        ({"choosing_images": np.zeros((20, 16, 16), np.uint8)}, "uint8 images and n labels"),
        ({"choosing_images": np.zeros((20, 16, 16, 4), np.uint8)}, "uint8 images and n labels"),
        ({"choosing_labels": np.zeros(19, np.int64)}, "uint8 images and n labels"),
        ({"choosing_labels": np.full(20, tiny.CLASSES)}, "labels outside 0 … 4"),
        ({"choosing_labels": np.full(20, -1)}, "labels outside 0 … 4"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(
    folder: Path, arrays: dict[str, np.ndarray], problem: str
) -> None:
    changed = change(folder, "circles", **arrays)
    with pytest.raises(TaskError, match=rf"circles\.npz: 'choosing' .*{problem}"):
        changed.load_images("circles", "choosing")
    assert len(changed.load_images("circles", "reporting")[0]) == tiny.REPORTING


def test_labels_are_read_once_and_again_after_a_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark, opened = Benchmark.load(folder), list[Path]()
    monkeypatch.setattr(benchmark_file, "Npz", lambda path: opened.append(path) or Npz(path))
    first = benchmark.load_labels("circles", "reporting")
    first[:] = 0  # a copy of what is kept
    labels = benchmark.load_labels("circles", "reporting")
    assert len(opened) == 1 and labels.any()
    other = change(folder, "circles", reporting_labels=(labels + 1) % tiny.CLASSES)
    assert (other.load_labels("circles", "reporting") == (labels + 1) % tiny.CLASSES).all() and len(opened) == 2


def test_the_digest_follows_tasks_images_and_heads(folder: Path) -> None:
    digests = [Benchmark.load(folder).digest]
    digests.append(change(folder, "tiles", choosing_labels=np.zeros(20, np.int64)).digest)
    heads = load_file(folder / "heads.safetensors")
    save_file(heads | {"digits": heads["digits"].flip(0).contiguous()}, folder / "heads.safetensors")
    digests.append(Benchmark.load(folder).digest)
    (folder / "tasks.json").write_text((folder / "tasks.json").read_text().replace("Circles", "Rings"))
    digests.append(Benchmark.load(folder).digest)
    assert len(set(digests)) == 4 and Benchmark.load(folder).digest == digests[-1]


def test_a_model_of_other_sizes_is_no_fit(tiny_benchmark: Benchmark) -> None:
    state = tiny.pretrained()
    assert tiny_benchmark.describe_misfit(tiny.checkpoint(state)) == ""
    wide = state | {"visual.proj": torch.zeros(tiny.WIDTH, 9)}
    assert "gives 9 features" in tiny_benchmark.describe_misfit(tiny.checkpoint(wide))
    tall = state | {"visual.positional_embedding": torch.zeros(10, tiny.WIDTH)}
    assert "takes images of 24 × 24" in tiny_benchmark.describe_misfit(tiny.checkpoint(tall))


def test_a_head_has_a_row_for_every_class(folder: Path) -> None:
    heads = load_file(folder / "heads.safetensors")
    save_file(heads | {"digits": heads["digits"][:4].contiguous()}, folder / "heads.safetensors")
    with pytest.raises(TaskError, match=r"head of 'digits' is \(4, 8\); expected 5 rows"):
        Benchmark.load(folder).load_head("digits")


# Evaluation


def test_an_image_is_of_the_class_with_the_highest_cosine() -> None:
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(30, 6, generator=draw) * torch.tensor([1, 30, 0.1, 1, 5, 1.0]) * torch.rand(30, 1)
    head = torch.nn.functional.normalize(torch.randn(4, 6, generator=draw), dim=1)
    plain = [[float(image @ row / image.norm()) for row in head] for image in images]
    torch.testing.assert_close(cosines(images, head), torch.tensor(plain))
    assert predict(images, head).tolist() == [max(range(4), key=row.__getitem__) for row in plain]


def test_scores_count_the_right_answers_of_every_split(tiny_benchmark: Benchmark) -> None:
    model = tiny.checkpoint(tiny.family()[1]["flags"])
    table = evaluate(model, tiny_benchmark, tasks=["flags", "tiles"], context=Context(device="cpu"))
    for row in table.to_dict("records"):
        images, labels = tiny_benchmark.load_images(row["task"], row["split"])
        rows = torch.cat([Encoder.from_checkpoint(model)(tiny_benchmark.preprocess(image[None])) for image in images])
        correct = int((predict(rows, tiny_benchmark.load_head(row["task"])) == labels).sum())
        assert (row["correct"], row["n"], row["classes"]) == (correct, len(labels), tiny.CLASSES)
        assert row["accuracy"] == correct / len(labels)
    assert [(row["task"], row["split"]) for row in table.to_dict("records")] == [
        (task, split) for task in ("flags", "tiles") for split in ("choosing", "reporting")
    ]


# Features that were computed elsewhere


def test_cached_features_give_the_accuracy_of_their_model_and_of_no_other(tmp_path: Path) -> None:
    _, experts = tiny.family(("a", "b"))
    model, other = tiny.checkpoint(experts["a"]), tiny.checkpoint(experts["b"])
    rows = compute_features(Encoder.from_checkpoint(model), torch.randn(9, 3, tiny.SIZE, tiny.SIZE))
    head = torch.nn.functional.normalize(torch.randn(3, tiny.EMBED), dim=1)
    labels = torch.from_numpy(predict(rows, head))
    labels[:2] = (labels[:2] + 1) % 3
    FeatureFile(rows, labels, model.digest).save(tmp_path / "features.npz")
    cached = FeatureFile.load(tmp_path / "features.npz")
    scores = cached.score(model, head)
    assert (scores["correct"], scores["n"], scores["accuracy"]) == (7, 9, 7 / 9)
    with pytest.raises(TaskError, match="say nothing of another"):
        cached.score(other, head)
    with pytest.raises(TaskError, match="outside the head's 2 classes"):
        dataclasses.replace(cached, labels=labels.clamp(max=2).fill_(2)).score(model, head[:2])
    with pytest.raises(TaskError, match="8 numbers, the head 7"):
        cached.score(model, head[:, :7])
