"""Spectra: planted subspaces, ranks with a known answer, and the measurement beside plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from merging.base.errors import TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.checkpoint import Checkpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.study import measure
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.study.weight_space import matrix_spectra
from merging.tasks.context import Context

CPU = Context(device="cpu")
RNG = np.random.default_rng(0)


def test_alignment_is_one_inside_the_subspace_and_zero_at_right_angles_to_it() -> None:
    basis, _ = np.linalg.qr(RNG.normal(size=(8, 8)))
    inside, across = basis[:, :3] @ RNG.normal(size=(3, 5)), basis[:, 3:] @ RNG.normal(size=(5, 5))
    both = inside / np.linalg.norm(inside) + across / np.linalg.norm(across)
    vectors = torch.from_numpy(np.stack([inside, across, both, np.zeros((8, 5))]))
    merged = torch.from_numpy(basis[:, :3] @ RNG.normal(size=(3, 5)))
    layer = matrix_spectra.decompose_layer(vectors, merged)
    assert layer.rank == 3 and layer.ratios[:3] == pytest.approx([1, 0, 0.5**0.5], abs=1e-12)
    assert np.isnan(layer.ratios[3]) and layer.values.shape == (6, 5)
    nothing = matrix_spectra.decompose_layer(vectors, torch.zeros(8, 5, dtype=torch.float64))
    assert nothing.rank == 0 and nothing.ratios[:3].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("values", "rank"),
    [([1, 1, 1, 1], 4), ([1, 0.04], 1), ([1, 0.06], 2), ([1, 0.036, 0.036], 2), ([1, 0.03, 0.03], 1), ([0, 0], 0)],
)
def test_the_subspace_leaves_out_a_twentieth_of_the_norm(values: list[float], rank: int) -> None:
    assert matrix_spectra.find_subspace_rank(np.array(values, float)) == rank


def test_ranks_of_known_spectra() -> None:
    flat, one = np.full(6, 2.0), np.array([3.0, 0.0, 0.0])
    assert matrix_spectra.effective_rank(flat) == pytest.approx(6) == matrix_spectra.stable_rank(flat)
    assert matrix_spectra.effective_rank(one) == 1 == matrix_spectra.stable_rank(one)
    assert matrix_spectra.stable_rank(np.array([2.0, 1.0])) == 1.25
    half = np.sqrt([0.5, 0.25, 0.25])
    assert matrix_spectra.effective_rank(half) == pytest.approx(2**1.5)
    assert np.isnan(matrix_spectra.effective_rank(np.zeros(2))) and np.isnan(matrix_spectra.stable_rank(np.zeros(2)))


def test_the_measurement_is_that_of_numpy(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    run = next(run for run in store.list_runs() if run.kind == "merge" and not run.per_task)
    measured = measure.measure("spectra", store, benchmark, run.id, context=CPU)
    ranks, alignment, values = measured.table("ranks"), measured.table("alignment"), measured.array("merged")
    assert run.recipe is not None
    merged = execute.execute(run.recipe, Store(store.root / "x", libraries=()), evaluate=False, context=CPU)
    model, pretrained = merged.open_models()["merged"], benchmark.open_pretrained()
    experts = {name: open_checkpoint(path, name) for name, path in benchmark.experts.items()}
    layers = list(dict.fromkeys(ranks["tensor"]))
    assert measured.notes["layers"] == len(layers) == len(values)
    for number, layer in enumerate(layers):

        def read(one: Checkpoint, layer: str = layer) -> np.ndarray:
            matrix = one.read(layer).double().numpy()
            return matrix.T if layer == "visual.proj" else matrix

        changes = {name: read(one) - read(pretrained) for name, one in experts.items()}
        changes |= {matrix_spectra.SUM: sum(changes.values()), matrix_spectra.MERGED: read(model) - read(pretrained)}
        rows = ranks[ranks["tensor"] == layer].set_index("matrix")
        for name, change in changes.items():
            expected = np.linalg.svd(change, compute_uv=False)
            if name == matrix_spectra.MERGED:
                assert values[number][: len(expected)] == pytest.approx(expected, rel=1e-5, abs=1e-6)
            assert rows.loc[name, "norm"] == pytest.approx(np.linalg.norm(change), rel=1e-5)
            if change.any():
                shares = expected**2 / (expected**2).sum()
                entropy = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
                assert rows.loc[name, "effective"] == pytest.approx(np.exp(entropy), rel=1e-5)
        change, own = changes[matrix_spectra.MERGED], alignment[alignment["tensor"] == layer].set_index("expert")
        kept = np.linalg.svd(change)[0][:, : int(own["rank"].iloc[0])]
        assert np.linalg.norm(change - kept @ kept.T @ change) <= 0.05 * np.linalg.norm(change)
        for name in experts:
            ratio = np.linalg.norm(kept.T @ changes[name]) / np.linalg.norm(changes[name])
            assert own.loc[name, "ratio"] == pytest.approx(ratio, rel=1e-5, abs=1e-7)


def test_one_model_per_task_has_no_spectra(store: Store, library: Path) -> None:
    run = next(run for run in store.list_runs() if run.per_task)
    with pytest.raises(TaskError, match="one model per task"):
        measure.measure("spectra", store, Benchmark.load(library), run.id, context=CPU)
