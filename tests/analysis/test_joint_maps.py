"""One map for several models: what equal and exchanged features must give, that parts stay trustworthy, and storing."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import tiny
from threadpoolctl import threadpool_limits

from merging.base import settings
from merging.base.errors import StoreError, TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.study import measure
from merging.study.analysis import measurement_store
from merging.study.analysis.separability import cosine_distances, trustworthiness, unit_rows
from merging.study.measurements import joint_tsne, merge_path
from merging.study.measurements.tsne import map_name
from merging.study.runs.run import join_run_ids
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

CPU = Context(device="cpu")
RNG = np.random.default_rng(0)
CLASSES = np.arange(150) % 5
ROWS = (RNG.normal(size=(150, 8)) * 0.5 + RNG.normal(size=(5, 8))[CLASSES] * 2).astype(np.float32)
DIGEST = """
import hashlib, sys
import numpy as np
from merging.study.measurements.joint_tsne import fit_joint_map
features = [rows for rows in np.load(sys.argv[1])]
print(hashlib.sha256(fit_joint_map(features).tobytes()).hexdigest())
"""


def run_ids(store: Store, *titles: str) -> list[str]:
    known = {run.title: run.id for run in store.list_runs()}
    return [known[title] for title in titles]


def bundled_features(domain: str = "") -> tuple[list[str], list[np.ndarray], list[np.ndarray]]:
    """Ids, features and maps alone (from principal components) of the pretrained model and two merges."""
    store, benchmark = Store(Path("/nonexistent"), libraries=(settings.LIBRARY_FOLDER,)), Benchmark.load()
    ids = run_ids(store, "Pretrained", "Task Arithmetic", "Task Arithmetic w/ LwPTV")
    features, maps = [], []
    for run_id in ids:
        for key, array, found in ((f"features{domain}", "features", features), ("tsne", map_name("all", 30), maps)):
            measured = measurement_store.find_measurement_result(key, store, benchmark, run_id)
            assert measured is not None
            found.append(measured.array(array).astype(np.float32))
    return ids, features, maps


def digests(features: list[np.ndarray], folder: Path) -> set[str]:
    """Digests of the joint map in processes with one and with two threads."""
    np.save(folder / "features.npy", np.stack(features))
    found = set()
    for threads in ("1", "2"):
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", DIGEST, str(folder / "features.npy")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout.strip())
    return found


# Moves


@pytest.mark.full
def test_equal_features_stay_and_exchanged_ones_are_found() -> None:
    (_, equal, limit, n), (_, auc, least, planted) = joint_tsne.check_moves(ROWS)
    assert equal < limit == 0.001 and auc >= least == 0.95
    assert (n, planted) == (150, 15)


def test_exchanged_images_have_the_features_of_others() -> None:
    planted, is_planted = joint_tsne.plant_moves(ROWS)
    assert is_planted.sum() == 15
    assert (planted != ROWS).any(axis=1).tolist() == is_planted.tolist()
    assert sorted(map(tuple, planted.tolist())) == sorted(map(tuple, ROWS.tolist()))


def test_the_auc_is_what_pairs_give() -> None:
    values, is_sought = np.array([1.0, 3.0, 3.0, 0.5, 2.0]), np.array([False, True, False, False, True])
    pairs = [
        1.0 if values[i] > values[j] else 0.5 if values[i] == values[j] else 0.0
        for i, j in permutations(range(5), 2)
        if is_sought[i] and not is_sought[j]
    ]
    assert joint_tsne.find_auc(values, is_sought) == pytest.approx(np.mean(pairs))
    assert np.isnan(joint_tsne.find_auc(values, np.zeros(5, bool)))


def test_moves_are_shares_of_the_width_and_cosines() -> None:
    positions = np.array([[[0, 0], [4, 0]], [[3, 4], [4, 0]]], np.float32)
    features = [np.array([[1.0, 0], [2, 2]]), np.array([[0, 5.0], [1, 1]])]
    moves = joint_tsne.measure_moves(positions, features, 1)
    np.testing.assert_allclose(moves.on_map, [5 / 4, 0])
    np.testing.assert_allclose(moves.of_features, [1, 0], atol=1e-12)
    np.testing.assert_allclose(cosine_distances(features[0], -features[0]), 2)


@pytest.mark.full
def test_a_map_alone_starts_from_the_joint_one() -> None:
    other = (ROWS + RNG.normal(size=ROWS.shape) * 0.1).astype(np.float32)
    positions = joint_tsne.fit_joint_map([ROWS, other])
    alone = joint_tsne.fit_alone_map(ROWS, positions[0])
    for axis in (0, 1):
        assert np.corrcoef(alone[:, axis], positions[0][:, axis])[0, 1] > 0.8
    np.testing.assert_allclose(alone.mean(axis=0), positions[0].mean(axis=0), atol=1e-3)


@pytest.mark.full
def test_any_number_of_threads_gives_the_same_bytes() -> None:
    import sklearn.manifold  # noqa: F401 - limits apply to libraries that are loaded

    rows = RNG.normal(size=(300, 32)).astype(np.float32)
    maps = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            maps.append(joint_tsne.fit_joint_map([rows, rows + 0.1]).tobytes())
    assert maps[0] == maps[1]


@pytest.mark.full
def test_the_joint_map_of_the_bundled_features_can_be_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The acceptance figures of the bundled features; the stored map is the one that is fitted now."""
    ids, features, alone = bundled_features()
    positions = joint_tsne.fit_joint_map(features)
    trust = [trustworthiness(unit_rows(rows), flat, 15) for rows, flat in zip(features, positions, strict=True)]
    trust_alone = [trustworthiness(unit_rows(rows), flat, 15) for rows, flat in zip(features, alone, strict=True)]
    (_, equal, equal_limit, _), (_, auc, auc_limit, _) = joint_tsne.check_moves(features[0])
    same = digests(features, tmp_path)
    with capsys.disabled():
        print(f"\nequal features move by a median of {equal:.2e} of the width (below {equal_limit})")
        print(f"planted moves are found with an AUC of {auc:.4f} (at least {auc_limit})")
        for run_id, joint, one in zip(ids, trust, trust_alone, strict=True):
            print(f"{run_id}: trustworthiness {joint:.4f} on the joint map, {one:.4f} alone (at most 0.02 lower)")
        print(f"one and two threads: {len(same)} different result(s)")
    assert equal < 0.001 and auc >= 0.95 and len(same) == 1
    assert all(joint >= one - 0.02 for joint, one in zip(trust, trust_alone, strict=True))


@pytest.mark.parametrize("domain", ["", "_in_domain"])
def test_the_bundled_maps_meet_their_limits(domain: str) -> None:
    store = Store(Path("/nonexistent"), libraries=(settings.LIBRARY_FOLDER,))
    ids, features, _ = bundled_features(domain)
    measured = measurement_store.find_measurement_result(
        f"joint_tsne{domain}", store, Benchmark.load(), join_run_ids(ids)
    )
    assert measured is not None and measured.provenance == "precomputed"
    checks, quality = measured.table("checks").set_index("check"), measured.table("quality")
    assert checks.loc["equal features", "value"] < 0.001 and checks.loc["planted moves", "value"] >= 0.95
    assert checks.loc["trustworthiness lost", "value"] <= 0.02
    assert quality["run"].iloc[0] == ids[0] and set(quality["run"]) == set(ids)
    positions, by_id = measured.array("positions"), dict(zip(ids, features, strict=True))
    stored = [by_id[run_id] for run_id in quality["run"]]
    for index in (1, 2):
        moves = joint_tsne.measure_moves(positions, stored, index)
        assert quality["agreement"][index] == pytest.approx(moves.agreement, rel=1e-5)
        assert quality["median_move"][index] == pytest.approx(np.median(moves.on_map), rel=1e-5)


# Measuring and storing


@pytest.mark.full
def test_runs_are_measured_together_in_any_order(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    ids = run_ids(store, "Task Arithmetic w/ LwPTV", "Pretrained", "Expert for Digits")
    measured = measure.measure("joint_tsne", store, benchmark, join_run_ids(ids), context=CPU)
    quality = measured.table("quality")
    assert quality["run"].tolist() == [ids[1], *sorted((ids[0], ids[2]))]
    n = len(tiny.OUTSIDE) * tiny.CHOOSING
    assert measured.array("positions").shape == measured.array("alone").shape == (3, n, 2)
    assert measured.array("positions").dtype == np.float32
    assert quality["median_move"][0] == 0 and quality["n"].tolist() == [n] * 3
    again = measure.measure("joint_tsne", store, benchmark, join_run_ids(reversed(ids)), context=CPU)
    assert again.path == measured.path
    for run_id in ids:
        assert measurement_store.find_measurement_result("features", store, benchmark, run_id) is not None


@pytest.mark.full
def test_joint_maps_in_domain_have_the_images_of_the_experts_tasks(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    ids = run_ids(store, "Pretrained", "Task Arithmetic w/ LwPTV")
    outside = measure.measure("joint_tsne", store, benchmark, join_run_ids(ids), context=CPU)
    inside = measure.measure("joint_tsne_in_domain", store, benchmark, join_run_ids(ids), context=CPU)
    found = [measurement_store.find_measurement_result("features_in_domain", store, benchmark, one) for one in ids]
    assert inside.path != outside.path and all(found)
    features = [one.array("features").astype(np.float32) for one in found if one is not None]
    np.testing.assert_array_equal(inside.array("positions"), joint_tsne.fit_joint_map(features))
    path = measure.measure("merge_path_in_domain", store, benchmark, ids[1], context=CPU)
    assert set(path.table("images")["task"]) == set(benchmark.experts)


def test_what_cannot_be_on_one_map_is_refused(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    pretrained, expert, merge, routed = run_ids(
        store, "Pretrained", "Expert for Digits", "Task Arithmetic w/ LwPTV", "EMR-Merging"
    )
    for ids, reason in (
        ([expert, merge], "needs the pretrained model"),
        ([pretrained], "two to 6 models"),
        ([pretrained, pretrained], "two to 6 models"),
        ([pretrained, routed], "one model per task"),
    ):
        with pytest.raises(TaskError, match=reason):
            measure.measure("joint_tsne", store, benchmark, join_run_ids(ids), context=CPU)
    with pytest.raises(StoreError, match="several runs together"):
        measure.measure("joint_tsne", store, benchmark, context=CPU)


@pytest.mark.full
def test_models_along_the_merge_are_real(store: Store, library: Path) -> None:
    benchmark, (run_id,) = Benchmark.load(library), run_ids(store, "Task Arithmetic w/ LwPTV")
    measured = measure.measure("merge_path", store, benchmark, run_id, context=CPU)
    answers, images = measured.table("answers"), measured.table("images")
    assert measured.array("positions").shape == (7, len(images), 2)
    ends = {}
    for share, title in ((0, "Pretrained"), (1, "Task Arithmetic w/ LwPTV")):
        found = measure.measure("features", store, benchmark, run_ids(store, title)[0], context=CPU).table("images")
        ends[share] = found.set_index("image")["predicted"].to_dict()
        own = answers[answers["share"] == share].set_index("image")["predicted"].to_dict()
        assert own == {image: ends[share][image] for image in images["image"]}
    assert ends[0] != ends[1]


def test_a_model_on_the_way_has_a_share_of_the_change() -> None:
    base, experts = tiny.family()
    states = (base, experts[tiny.EXPERTS[0]])
    pretrained, merged = (Encoder.from_checkpoint(tiny.checkpoint(state)) for state in states)
    half = merge_path.blend_encoders(pretrained, merged, 0.5)
    for name, tensor in half.tensors.items():
        np.testing.assert_allclose(tensor, (pretrained.tensors[name] + merged.tensors[name]) / 2, atol=1e-6)
    assert merge_path.blend_encoders(pretrained, merged, 0) is pretrained
    assert merge_path.blend_encoders(pretrained, merged, 1) is merged
