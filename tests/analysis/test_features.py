"""Features out of domain: separability against plain loops, the same images and maps for everybody."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import tiny

from merging.base.errors import StoreError, TaskError
from merging.base.progress import Progress
from merging.engine.evaluation.image_features import ModulesOfTask
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_store, separability
from merging.study.measurements import features, tsne
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 60)
ROWS = RNG.normal(size=(60, 6)) + 1.5 * RNG.normal(size=(4, 6))[LABELS]


def run_id(store: Store, title: str) -> str:
    return next(run.id for run in store.list_runs() if title in run.title)


# Numbers


def cosine_distances(rows: np.ndarray) -> list[list[float]]:
    return [[1 - float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for b in rows] for a in rows]


def silhouette_by_loops(rows: np.ndarray, labels: np.ndarray) -> float:
    distances, values = cosine_distances(rows), []
    for i, own in enumerate(labels):
        means = {}
        for label in set(labels):
            others = [distances[i][j] for j in range(len(rows)) if labels[j] == label and j != i]
            means[label] = sum(others) / len(others) if others else math.nan
        within, nearest = means.pop(own), min(means.values())
        values.append(0.0 if math.isnan(within) else (nearest - within) / max(within, nearest))
    return sum(values) / len(values)


def correct_by_loops(rows: np.ndarray, labels: np.ndarray, neighbors: int) -> float:
    distances, correct = cosine_distances(rows), 0.0
    for i, own in enumerate(labels):
        nearest = sorted((j for j in range(len(rows)) if j != i), key=distances[i].__getitem__)[:neighbors]
        votes = {label: sum(labels[j] == label for j in nearest) for label in set(labels)}
        first = [label for label in votes if votes[label] == max(votes.values())]
        correct += (own in first) / len(first)
    return correct


def trustworthiness_by_loops(rows: np.ndarray, flat: np.ndarray, neighbors: int) -> float:
    n, penalty = len(rows), 0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        ranked = sorted(others, key=lambda j: math.dist(rows[i], rows[j]))
        for j in sorted(others, key=lambda j: math.dist(flat[i], flat[j]))[:neighbors]:
            penalty += max(0, ranked.index(j) + 1 - neighbors)
    return 1 - 2 * penalty / (n * neighbors * (2 * n - 3 * neighbors - 1))


def test_separability_is_what_loops_find() -> None:
    found = separability.separability(ROWS, LABELS)
    assert found.silhouette == pytest.approx(silhouette_by_loops(ROWS, LABELS), abs=1e-12)
    assert found.correct == pytest.approx(correct_by_loops(ROWS, LABELS, 20))
    assert 0 < found.correct < len(ROWS)
    assert (found.classes, found.n) == (4, 60)


@pytest.mark.parametrize("n", [2, 3, 20, 21, 22])
def test_few_images_all_vote(n: int) -> None:
    found = separability.separability(ROWS[:n], LABELS[:n])
    assert found.correct == pytest.approx(correct_by_loops(ROWS[:n], LABELS[:n], min(20, n - 1)))


def test_classes_with_as_many_votes_share_the_image() -> None:
    rows = separability.unit_rows(np.array([[1.0, 0.0], [1.0, 0.1], [1.0, -0.2]]))
    # the first two have a vote for each class, the third two votes for the other one
    for classes in (np.array([0, 0, 1]), np.array([1, 1, 0])):
        assert separability.vote(rows, classes).tolist() == [0.5, 0.5, 0.0]


def test_most_images_may_be_alone_in_their_class() -> None:
    labels = np.arange(60) // 2 * 2
    labels[:40] = np.arange(40)
    found = separability.separability(ROWS, labels)
    assert found.silhouette == pytest.approx(silhouette_by_loops(ROWS, labels), abs=1e-12)
    assert found.correct == pytest.approx(correct_by_loops(ROWS, labels, 20))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_counts_as_zeros(value: float) -> None:
    broken, zeros = ROWS.copy(), ROWS.copy()
    broken[7, 2], zeros[7] = value, 0
    assert np.array_equal(separability.unit_rows(broken), separability.unit_rows(zeros))
    found = separability.separability(broken, LABELS)
    assert math.isfinite(found.silhouette) and math.isfinite(found.scatter)


def test_scatter_is_what_loops_find() -> None:
    rows = separability.unit_rows(ROWS)
    between = within = 0.0
    for label in np.unique(LABELS):
        of_class = rows[label == LABELS]
        mean = of_class.mean(axis=0)
        between += len(of_class) * float(((mean - rows.mean(axis=0)) ** 2).sum())
        within += sum(float(((row - mean) ** 2).sum()) for row in of_class)
    assert separability.separability(ROWS, LABELS).scatter == pytest.approx(between / within, rel=1e-12)


def test_separability_sees_directions_only() -> None:
    longer = ROWS * RNG.uniform(0.1, 9, (len(ROWS), 1))
    one, other = (separability.separability(rows, LABELS) for rows in (ROWS, longer))
    assert one == pytest.approx(other)


def test_trustworthiness_is_what_loops_find() -> None:
    rows, flat = separability.unit_rows(ROWS), ROWS[:, :2]
    expected = trustworthiness_by_loops(rows, flat, 12)
    assert separability.trustworthiness(rows, flat) == pytest.approx(expected, abs=1e-12)
    assert separability.trustworthiness(rows, flat.astype(np.float32)) == pytest.approx(expected, abs=1e-12)
    assert separability.trustworthiness(flat, flat) == 1
    assert math.isnan(separability.trustworthiness(rows[:24], flat[:24]))
    assert math.isfinite(separability.trustworthiness(rows[:25], flat[:25]))
    assert math.isnan(separability.trustworthiness(rows, np.full_like(flat, np.nan)))


@pytest.mark.parametrize(
    ("rows", "labels"),
    [(ROWS[:3], [0, 1, 2]), (ROWS[:5], [0] * 5), (ROWS[:1], [0]), (np.zeros((4, 3)), [0, 0, 1, 1])],
)
def test_what_is_undefined_is_not_a_number(rows: np.ndarray, labels: list[int]) -> None:
    found = separability.separability(rows, np.array(labels))
    assert found.n == len(rows)
    assert all(math.isnan(value) or math.isfinite(value) for value in (found.silhouette, found.scatter))
    if len(set(labels)) in (1, len(rows)):
        assert math.isnan(found.silhouette)


def test_an_image_alone_in_its_class_counts_as_zero() -> None:
    labels = np.array([0, *([1] * 30), *([2] * 29)])
    expected = silhouette_by_loops(ROWS, labels)
    assert separability.separability(ROWS, labels).silhouette == pytest.approx(expected, abs=1e-12)


def test_principal_components_are_fit_on_all_models_together() -> None:
    other = RNG.normal(size=(60, 6))
    found, shares = separability.principal_components({"a": ROWS, "b": other})
    together = np.concatenate([separability.unit_rows(ROWS), separability.unit_rows(other)])
    centered = together - together.mean(axis=0)
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    both = np.concatenate([found["a"], found["b"]])
    np.testing.assert_allclose(np.abs(both), np.abs(u[:, :2] * s[:2]), atol=1e-9)
    np.testing.assert_allclose(shares, (s**2 / (s**2).sum())[:2])


def test_principal_components_have_a_sign() -> None:
    """The largest number of each axis is positive, so that a map does not flip between machines."""
    base, ahead = np.eye(6)[0], np.eye(6)[1]
    for factor in (1, -1):
        rows = np.array([base, base, base + factor * ahead])
        found, _ = separability.principal_components({"a": rows})
        axis = separability.unit_rows(rows)[2] - separability.unit_rows(rows)[0]
        sign = np.sign(axis[np.abs(axis).argmax()])
        assert np.sign(found["a"][2, 0] - found["a"][0, 0]) == sign


def test_principal_components_of_rows_that_hardly_differ() -> None:
    rows = np.ones(6) + 1e-5 * ROWS
    centered = separability.unit_rows(rows) - separability.unit_rows(rows).mean(axis=0)
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    np.testing.assert_allclose(
        np.abs(separability.principal_components({"a": rows})[0]["a"]), np.abs(u[:, :2] * s[:2]), atol=1e-14
    )


@pytest.mark.parametrize("rows", [np.zeros((4, 3)), np.ones((4, 3)), ROWS[:1], ROWS[:0]])
def test_rows_that_are_alike_have_no_principal_components(rows: np.ndarray) -> None:
    found, shares = separability.principal_components({"a": rows, "b": rows})
    assert found["a"].shape == found["b"].shape == (len(rows), 2)
    assert not found["a"].any() and not shares.any()


def test_distances_of_raw_and_of_normalized_features() -> None:
    np.testing.assert_allclose(separability.reference_distances(ROWS, 2 * ROWS), np.linalg.norm(ROWS, axis=1))
    np.testing.assert_allclose(separability.reference_distances(ROWS, 2 * ROWS, normalized=True), 0, atol=1e-12)


def test_the_same_seed_gives_the_same_map() -> None:
    one, again = (tsne.tsne(separability.unit_rows(ROWS), 5) for _ in range(2))
    assert np.array_equal(one, again)
    assert not np.allclose(one, tsne.tsne(separability.unit_rows(ROWS[::-1]), 5))


# Measurements


def test_images_are_balanced_by_class_and_out_of_domain() -> None:
    benchmark = Benchmark.load()
    outside, inside = features.list_out_of_domain_keys(benchmark), features.list_in_domain_keys(benchmark)
    assert set(inside) == set(benchmark.experts) and not set(outside) & set(benchmark.experts)
    for keys in (outside, inside):
        assert 1000 <= sum(map(len, features.sample_images(benchmark, keys).values())) <= features.MAX_IMAGES
    drawn = features.sample_images(benchmark, outside)
    assert list(drawn) == outside
    for key, places in drawn.items():
        counts = np.bincount(benchmark.load_images(key, features.SPLIT)[1][places])
        assert counts.min() == counts.max() > 1
        assert len(set(places)) == len(places)
    assert all(np.array_equal(places, drawn[key]) for key, places in features.sample_images(benchmark, outside).items())


def test_a_benchmark_of_experts_only_has_nothing_outside(tiny_benchmark: Benchmark) -> None:
    inside = tuple(task for task in tiny_benchmark.tasks if task.has_expert)
    with pytest.raises(TaskError, match="none is out of domain"):
        features.list_out_of_domain_keys(Benchmark(tiny_benchmark.folder, inside, tiny.SIZE, (0.5,) * 3, (0.5,) * 3))
    outside = tuple(task for task in tiny_benchmark.tasks if not task.has_expert)
    with pytest.raises(TaskError, match="none is in domain"):
        features.list_in_domain_keys(Benchmark(tiny_benchmark.folder, outside, tiny.SIZE, (0.5,) * 3, (0.5,) * 3))


def test_images_in_domain_are_answered_with_the_head_of_their_task(store: Store, library: Path) -> None:
    benchmark, run = Benchmark.load(library), run_id(store, "Expert for Digits")
    found = measure.measure("features_in_domain", store, benchmark, run, context=Context("cpu"))
    outside = measure.measure("features", store, benchmark, run, context=Context("cpu"))
    table, rows = found.table("images"), found.array("features").astype(np.float64)
    assert found.path != outside.path and not set(table["image"]) & set(outside.table("images")["image"])
    assert list(dict.fromkeys(table["task"])) == features.list_in_domain_keys(benchmark) == list(tiny.EXPERTS)
    for key in tiny.EXPERTS:
        own, names = table[table["task"] == key], benchmark.find_task(key).class_names
        answers = (rows[own.index] @ np.asarray(benchmark.load_head(key), float).T).argmax(axis=1)
        agreeing = np.array(names)[answers] == own["predicted"]
        assert agreeing.mean() > 0.95  # stored features have half precision
    maps = measure.measure("tsne_in_domain", store, benchmark, run, context=Context("cpu"))
    assert set(maps.table("quality")["map"]) == {"all", *tiny.EXPERTS}


def test_images_in_domain_go_through_the_module_of_their_task(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    recipe = Recipe.build(
        "task_arithmetic", {}, [], benchmark.pretrained, benchmark.experts,
        adapt=("surgery", {"rank": 4, "steps": 2}),
    )  # fmt: skip
    run = execute(recipe, store, benchmark=benchmark, context=Context("cpu"))
    found = measure.measure("features_in_domain", store, benchmark, run.id, context=Context("cpu"))
    table, merged = found.table("images"), run.open_models()["merged"]
    modules, key = run.open_modules(merged), tiny.EXPERTS[0]
    assert modules is not None
    own = table[table["task"] == key]
    places = [int(image.partition(":")[2]) for image in own["image"]]
    images = benchmark.preprocess(benchmark.load_images(key, features.SPLIT)[0][places])
    stored = found.array("features")[own.index].astype(np.float32)
    with_module, without = (np.abs(ModulesOfTask(modules, of)(images).numpy() - stored).mean() for of in (key, ""))
    assert with_module < 2.5e-4 and without > 4e-4  # stored features have half precision


def test_features_of_all_kinds_of_models_are_of_the_same_images(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    titles = ("Pretrained", "Expert for Digits", "LwPTV")
    found = [measure.measure("features", store, benchmark, run_id(store, t), context=Context("cpu")) for t in titles]
    tables = [one.table("images") for one in found]
    assert {one.notes["images"] for one in found} == {len(tiny.OUTSIDE) * tiny.CHOOSING}
    assert all(table["image"].equals(tables[0]["image"]) for table in tables)
    assert len({one.array("features").tobytes() for one in found}) == len(found)
    rows = found[0].array("features")
    assert rows.dtype == np.float16  # half the room on the disk
    assert rows.shape == (len(tables[0]), tiny.EMBED)
    place = int(tables[0]["image"][3].split(":")[1])
    images, _ = benchmark.load_images("letters", features.SPLIT)
    alone = Encoder.from_checkpoint(tiny.checkpoint(tiny.family()[0]))(benchmark.preprocess(images[place : place + 1]))
    np.testing.assert_allclose(rows[3], alone[0].numpy(), rtol=2e-2, atol=2e-2)  # the file has half precision
    numbers = found[2].table("separability").set_index("task")
    assert list(numbers.index) == [*tiny.OUTSIDE, features.ALL_DATA_SETS]
    at = (tables[2]["task"] == "tiles").to_numpy()
    own = separability.separability(
        found[2].array("features")[at].astype(np.float32), tables[2]["truth"][at].to_numpy(str)
    )
    assert numbers.loc["tiles"].tolist() == pytest.approx(list(own), rel=1e-6, nan_ok=True)


def test_maps_reuse_stored_features(store: Store, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark, run = Benchmark.load(library), run_id(store, "LwPTV")
    measure.measure("features", store, benchmark, run, context=Context(device="cpu"))
    monkeypatch.setattr(Encoder, "from_checkpoint", lambda *_, **__: pytest.fail("extracted again"))
    told: list[Progress] = []
    found = measure.measure("tsne", store, benchmark, run, context=Context(device="cpu", progress=told.append))
    quality = found.table("quality")
    wanted = [("all", 5, 40), ("all", 30, 40), ("letters", 5, 20), ("tiles", 5, 20)]
    assert list(zip(quality["map"], quality["perplexity"], quality["n"], strict=True)) == wanted
    for name, perplexity, n in wanted:
        assert found.array(tsne.map_name(name, perplexity)).shape == (n, 2)
    assert quality["n"].tolist() == [40, 40, 20, 20]
    assert quality["trustworthiness"].notna().tolist() == [True, True, False, False]
    assert [one.fraction for one in told] == sorted(one.fraction for one in told)


def test_features_too_large_for_half_precision_are_kept_whole() -> None:
    rows = np.array([[1.0, -2.5]], np.float32)
    assert features.to_half_precision(rows).dtype == np.float16
    assert np.array_equal(features.to_half_precision(1e6 * rows), 1e6 * rows)
    assert features.to_half_precision(rows[:0]).shape == (0, 2)


def test_maps_compute_features_that_are_missing(store: Store, library: Path) -> None:
    benchmark, run = Benchmark.load(library), run_id(store, "Pretrained")
    measure.measure("tsne", store, benchmark, run, context=Context(device="cpu"))
    assert measurement_store.find_measurement_result("features", store, benchmark, run) is not None


def test_a_damaged_array_is_measured_again(store: Store, library: Path) -> None:
    benchmark, run = Benchmark.load(library), run_id(store, "Pretrained")
    found = measure.measure("features", store, benchmark, run, context=Context(device="cpu"))
    rows = found.array("features")
    (found.path / "features.npy").write_bytes(b"x")
    with pytest.raises(StoreError, match="Measure it again"):
        found.array("features")
    assert measurement_store.find_measurement_result("features", store, benchmark, run) is None
    again = measure.measure("features", store, benchmark, run, context=Context(device="cpu"))
    assert np.array_equal(again.array("features"), rows)


def test_one_model_per_task_has_no_features_out_of_domain(store: Store, library: Path) -> None:
    with pytest.raises(TaskError, match="one model per task"):
        measure.measure("features", store, Benchmark.load(library), run_id(store, "EMR"), context=Context(device="cpu"))


def test_a_map_of_equal_features_is_one_place():
    assert not tsne.tsne(np.ones((40, 8), np.float32), 5).any()
