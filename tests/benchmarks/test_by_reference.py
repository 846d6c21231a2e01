"""Benchmarks whose images stay in files: pixels and scores as of stored ones, and files that are gone are named."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_data
import torch

from merging.base.errors import Cancelled, CheckpointError, TaskError
from merging.base.files.atomic import file_hash
from merging.base.progress import Meter
from merging.cli.main import main
from merging.engine.evaluation.evaluate import EvaluatedModel, evaluate
from merging.images.benchmarks import data_set_locations, image_decoding
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.images.benchmarks.image_draws import ImageDraw, describe_draws, read_draws
from merging.images.benchmarks.model_search import describe_missing_models
from merging.images.benchmarks.referenced_images import ReferencedImages, select_images
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.referenced_model import resolve_model_path
from merging.recipes.recipe import Recipe
from merging.sharing.published.row_scores import score_together
from merging.study.runs.execute import execute
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

PARTS = {"train": tiny_data.rows(4), "test": tiny_data.rows(6, 100)}
ALL = ("exemplars", *SPLITS)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, and a data set as parquet and as image files; do not change it."""
    root = tmp_path_factory.mktemp("referenced")
    tiny_data.whole_model(root / "clip.safetensors")
    tiny.write_family(root / "experts")
    tiny_data.folder(root / "folder", PARTS)
    tiny_data.parquet(root / "parquet", PARTS)
    tiny_data.arrow(root / "arrow", PARTS)
    return root


def made(base: Path, folder: Path, data: str = "parquet", by_reference: bool = True, **options: Any) -> Benchmark:
    task = {"images": data, "expert": "experts/flags.safetensors"}
    plain = {"pretrained": "clip.safetensors", "images": 4, "exemplars": 5, "tasks": {"fruit": task}, **options}
    return write_benchmark(
        Description.from_plain({**plain, "by_reference": by_reference}, base), folder, tokenize=tiny_data.letters
    )


@pytest.fixture
def moved(base: Path, tmp_path: Path) -> tuple[Benchmark, Path]:
    """A benchmark that refers to files of its own, and their folder."""
    data = tiny_data.parquet(tmp_path / "own", PARTS)
    return made(base, tmp_path / "bench", str(data)), data


def rows(benchmark: Benchmark, split: str) -> list[tuple[bytes, int]]:
    images, labels = benchmark.load_images("fruit", split)
    return [(np.asarray(image).tobytes(), int(label)) for image, label in zip(images, labels, strict=True)]


@pytest.mark.parametrize("images", ["parquet", "folder"])
def test_pixels_and_scores_are_those_of_stored_images(base: Path, tmp_path: Path, images: str) -> None:
    stored = made(base, tmp_path / "stored", images, by_reference=False)
    referred = made(base, tmp_path / "referred", images)
    for split in ALL:
        assert sorted(rows(referred, split)) == sorted(rows(stored, split)), "the same images, in the order of files"
    scores, others = (evaluate(one.experts["fruit"], one, context=Context(device="cpu")) for one in (referred, stored))
    assert scores.to_dict("records") == others.to_dict("records")
    assert (tmp_path / "referred/data/fruit.npz").stat().st_size < 4_000 + 200 * (images == "folder")
    assert "fruit.places.json" not in json.dumps(json.loads((tmp_path / "referred/manifest.json").read_text())["files"])


def test_an_index_gives_what_an_array_would_give(base: Path, tmp_path: Path) -> None:
    images = made(base, tmp_path / "bench", images=0).load_images("fruit", "reporting")[0]
    assert isinstance(images, ReferencedImages)
    whole = images[:]
    assert whole.shape == images.shape == (9, tiny.SIZE, tiny.SIZE, 3)
    for at in (np.array([7, 2, 2, 5]), np.arange(9) % 2 == 0, slice(2, 6), 3, np.int64(-1)):
        np.testing.assert_array_equal(images[at], whole[at])
    np.testing.assert_array_equal(select_images(images, np.array([8, 1]), max_bytes=0)[:], whole[[8, 1]])
    assert isinstance(select_images(images, np.array([8, 1]), max_bytes=0), ReferencedImages)
    with pytest.raises(IndexError):
        images[9]


@pytest.mark.parametrize("workers", [1, 3])
def test_results_do_not_depend_on_the_number_of_threads(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(image_decoding, "count_threads", lambda: workers)
    monkeypatch.setattr(image_decoding, "CHUNK_SIZE", 2)
    benchmark = made(base, tmp_path / "bench", images=0)
    images = benchmark.load_images("fruit", "reporting")[0]
    assert isinstance(images, ReferencedImages)
    with images.batches(5, benchmark.preprocess) as batches:
        found = list(batches)
    assert [len(batch) for batch in found] == [5, 4]
    assert torch.equal(torch.cat(found), benchmark.preprocess(images[:]))


def test_a_request_to_stop_ends_the_threads(base: Path, tmp_path: Path) -> None:
    benchmark = made(base, tmp_path / "bench", images=0)
    before = threading.active_count()
    stop = threading.Event()
    with pytest.raises(Cancelled):
        evaluate(benchmark.pretrained, benchmark, context=Context("cpu", progress=lambda _: stop.set(), cancel=stop))
    assert threading.active_count() <= before


def test_several_models_decode_an_image_once(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = made(base, tmp_path / "bench", images=0)
    models = {"pretrained": benchmark.pretrained, "expert": benchmark.experts["fruit"]}
    alone = {name: evaluate(model, benchmark, context=Context(device="cpu")) for name, model in models.items()}
    decoded: list[str] = []
    read = image_decoding.read_image
    monkeypatch.setattr(image_decoding, "read_image", lambda data, label: decoded.append(label) or read(data, label))
    work = [EvaluatedModel(name, model, ["fruit"]) for name, model in models.items()]
    together = score_together(work, benchmark, context=Context(device="cpu"))
    assert len(decoded) == len(set(decoded)) == 18
    for name, scores in together.items():
        assert scores.evaluation.scores.to_dict("records") == alone[name].to_dict("records"), name


# --- the files -------------------------------------------------------------------------------------------------------


def test_files_that_are_gone_are_named_and_can_be_found(
    moved: tuple[Benchmark, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark, data = moved
    before, digest = rows(benchmark, "reporting"), benchmark.digest
    (data / "data").rename(tmp_path / "elsewhere")
    assert len(benchmark.load_labels("fruit", "reporting")) == 4, "labels need no images"
    with pytest.raises(TaskError, match=r"missing: .*parquet.*benchmark find /.*/bench FOLDER"):
        evaluate(benchmark.pretrained, benchmark, context=Context(device="cpu"))
    assert main(["benchmark", "check", str(benchmark.folder)]) == 1
    assert main(["benchmark", "find", str(benchmark.folder), str(tmp_path / "own")]) == 1
    assert main(["benchmark", "find", str(benchmark.folder), str(tmp_path)]) == 0
    assert "All files were found" in capsys.readouterr().out
    again = Benchmark.load(benchmark.folder)
    assert rows(again, "reporting") == before and again.digest == digest, "paths are not part of what scores depend on"


def test_models_that_were_moved_are_found_by_their_digest(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    shutil.copytree(base / "experts", home / "experts")
    shutil.copy(base / "clip.safetensors", home)
    shutil.copytree(base / "parquet", home / "parquet")
    benchmark = made(home, tmp_path / "bench", models_by_reference=True)
    places = [benchmark.folder / "models" / f"{name}.json" for name in ("pretrained", "fruit")]
    digests = [open_checkpoint(path).digest for path in places]
    home.rename(tmp_path / "away")
    with pytest.raises(CheckpointError, match=r"is missing: .*benchmark find /.*/bench FOLDER"):
        open_checkpoint(places[0])
    (tmp_path / "other" / "experts").mkdir(parents=True)
    shutil.copy(base / "experts" / "digits.safetensors", tmp_path / "other" / "experts" / "flags.safetensors")
    assert main(["benchmark", "find", str(benchmark.folder), str(tmp_path / "other")]) == 1
    printed = capsys.readouterr().out
    assert "The models pretrained, fruit are not stored in the benchmark" in printed
    assert main(["benchmark", "find", str(benchmark.folder), str(tmp_path)]) == 0
    assert "All files were found" in capsys.readouterr().out
    assert [open_checkpoint(path).digest for path in places] == digests
    assert resolve_model_path(str(places[1])) == str(tmp_path / "away" / "experts" / "flags.safetensors")
    assert main(["benchmark", "check", str(benchmark.folder)]) == 0, "the references are as they were written"
    (tmp_path / "away").rename(home)
    shutil.rmtree(tmp_path / "other")
    assert (
        describe_missing_models(benchmark.folder) and main(["benchmark", "find", str(benchmark.folder), str(home)]) == 0
    )


def test_files_of_a_hub_s_cache_are_found_by_their_names(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "hub" / "datasets--someone--fruit"
    snapshot = cache / "snapshots" / "abc123"
    (cache / "blobs").mkdir(parents=True)
    for file in list(tiny_data.parquet(snapshot, PARTS).rglob("*.parquet")):
        blob = cache / "blobs" / file_hash(file)
        file.rename(blob)
        file.symlink_to(os.path.relpath(blob, file.parent))
    benchmark = made(base, tmp_path / "bench", str(snapshot))
    (tmp_path / "hub").rename(tmp_path / "moved")
    hashed: list[Path] = []
    monkeypatch.setattr(data_set_locations, "file_hash", lambda path: hashed.append(path) or file_hash(path))
    steps: list[str] = []
    assert benchmark.relink_files(tmp_path / "moved", Meter(0, lambda step: steps.append(step.phase))) == []
    assert not hashed and set(steps) == {"Comparing files"} and len(rows(benchmark, "reporting")) == 4


def test_a_file_that_has_changed_is_not_used(moved: tuple[Benchmark, Path]) -> None:
    benchmark, data = moved
    file = next((data / "data").glob("test-*"))
    content = file.read_bytes()
    os.utime(file, ns=(1, 1))
    assert len(rows(benchmark, "reporting")) == 4, "only its time has changed, and the digest says so"
    file.write_bytes(content[:-9] + bytes(9))
    with pytest.raises(TaskError, match=f"changed since: {file.name}"):
        benchmark.load_images("fruit", "reporting")
    file.write_bytes(content + b"x")
    with pytest.raises(TaskError, match="changed since"):
        benchmark.check_images(["fruit"])


def test_files_of_the_hub_are_fetched_again_in_a_command(base: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "datasets--someone--fruit" / "snapshots" / "abc123"
    tiny_data.parquet(snapshot, PARTS)
    benchmark = made(base, tmp_path / "bench", str(snapshot))
    (snapshot / "data").rename(tmp_path / "gone")
    with pytest.raises(TaskError, match="hf download --repo-type dataset someone/fruit --revision abc123"):
        benchmark.load_unlabeled("fruit", "choosing")


def test_places_outside_of_the_files_are_refused(base: Path, tmp_path: Path) -> None:
    benchmark = made(base, tmp_path / "bench")
    (tmp_path / "bench" / "manifest.json").unlink()  # which would notice the other file first
    path = tmp_path / "bench" / "data" / "fruit.npz"
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"choosing_places": arrays["choosing_places"] + [9, 0, 0]})
    with pytest.raises(TaskError, match="outside of its 4 files"):
        benchmark.load_unlabeled("fruit", "choosing")
    np.savez(path, **arrays | {"choosing_places": arrays["choosing_places"] + [0, 99, 0]})
    with pytest.raises(TaskError, match="has no row"):
        benchmark.load_unlabeled("fruit", "choosing")[:]


def test_images_without_a_place_of_their_own_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="Make the benchmark without --by-reference"):
        made(base, tmp_path / "bench", "arrow")


def test_damaged_images_are_left_out_as_stored_ones_are(base: Path, tmp_path: Path) -> None:
    tiny_data.folder(tmp_path / "data", {"train": tiny_data.rows(10), "test": tiny_data.rows(10, 500)})
    bad = tmp_path / "data" / "test" / "bear" / "00511.png"
    bad.write_bytes(bad.read_bytes()[:40])
    found = made(base, tmp_path / "bench", str(tmp_path / "data"), images="all", exemplars="all")
    assert found.count_images("fruit", "choosing") + found.count_images("fruit", "reporting") == 29
    assert json.loads((found.folder / "manifest.json").read_text())["tasks"]["fruit"]["damaged"] == 1


# --- which images ----------------------------------------------------------------------------------------------------


def test_whole_test_sets_are_reported_on(base: Path, tmp_path: Path) -> None:
    benchmark = made(base, tmp_path / "bench", images="all", whole=True)
    assert benchmark.count_images("fruit", "reporting") == 18 and benchmark.find_task("fruit").splits == ("reporting",)
    assert evaluate(benchmark.pretrained, benchmark, context=Context(device="cpu"))["split"].tolist() == ["reporting"]
    with pytest.raises(TaskError, match="has no choosing half: its whole test set is for reporting"):
        benchmark.load_images("fruit", "choosing")
    assert read_draws(benchmark.folder)["fruit"].text == "all 18"
    some = made(base, tmp_path / "some", images=6, whole=True, balanced=True, seed=3)
    assert np.bincount(some.load_labels("fruit", "reporting")).tolist() == [2, 2, 2]
    assert read_draws(some.folder)["fruit"].text == "6 of 18 drawn with seed 3, class-balanced"


@pytest.mark.parametrize(
    "drawn,words",
    [
        ([], ""),
        ([(9, 9), (5, 5)], "all images of every test set"),
        ([(5, 9), (5, 20)], "5 of 9 to 20 images of each test set, drawn with seed 0, class-balanced"),
        ([(5, 9), (5, 5)], "5 of 9 images of each test set, drawn with seed 0, class-balanced; all of 1 others"),
    ],
)
def test_draws_in_words(drawn: list[tuple[int, int]], words: str) -> None:
    assert describe_draws([ImageDraw(n, of, 0, True) for n, of in drawn]) == words


def test_every_score_says_which_images_it_is_of(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = made(base, tmp_path / "bench", balanced=True)
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(benchmark.folder))
    assert main(["evaluate", benchmark.pretrained, "--device", "cpu"]) == 0
    assert "4 of 18 drawn with seed 0, class-balanced" in capsys.readouterr().out
    assert main(["evaluate", benchmark.pretrained, "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["drawn"] == {"n": 4, "of": 18, "seed": 0, "balanced": True}
    recipe = Recipe.from_plain({"pretrained": benchmark.pretrained, "experts": benchmark.experts, "merge": "ties"})
    run = execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, context=Context(device="cpu"))
    words = "4 of 18 images of each test set, drawn with seed 0, class-balanced"
    assert run.test_images == words
    assert all(one.test_images == words for one in find_references(Store(tmp_path / "store"), benchmark).values())
