"""Numbers of weight space on the bundled benchmark, computed again by plain numpy from its files and from features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from small_sweeps import read_points, run

from merging.base import settings
from merging.base.devices import choose_device
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.study.analysis.measurement_store import StoredMeasurement, find_measurement_result
from merging.study.measurements.drift import tokens_by_depth
from merging.study.measurements.features import sample_images
from merging.study.runs import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_session, sweep_tables
from merging.study.sweeps.sweep import PLANE, Axis, Sweep
from merging.study.weight_space import matrix_spectra, model_map
from merging.tasks.context import Context

MATRICES = ("visual.proj", "visual.transformer.resblocks.3.mlp.c_fc.weight")
LIBRARY = Store(Path("/nonexistent"), libraries=(settings.LIBRARY_FOLDER,))
AVERAGE = next(run for run in LIBRARY.list_runs() if run.title == "Weight Averaging")
CPU = Context(device="cpu")
Weights = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def bundled() -> Benchmark:
    return Benchmark.load()


@pytest.fixture(scope="module")
def weights(bundled: Benchmark) -> dict[str, Weights]:
    """{model: its tensors in float64} of the pretrained model, of the experts and of their average, stored in half."""
    files = {name: load_file(bundled.folder / "models" / f"{name}.safetensors") for name in AVERAGE.experts}
    files["pretrained"] = load_file(bundled.folder / "models" / "pretrained.safetensors")
    models = {model: {name: value.astype(float) for name, value in file.items()} for model, file in files.items()}
    experts = [models[expert] for expert in AVERAGE.experts]
    mean = {name: np.mean([expert[name] for expert in experts], axis=0) for name in models["pretrained"]}
    return models | {"average": {name: value.astype(np.float16).astype(float) for name, value in mean.items()}}


def find_stored(key: str, subject: str, benchmark: Benchmark) -> StoredMeasurement:
    found = find_measurement_result(key, LIBRARY, benchmark, subject)
    assert found is not None and found.provenance == "precomputed"
    return found


def encode(source: object, images: torch.Tensor) -> list[np.ndarray]:
    """The mean tokens (n, d) at each depth, in float64; the last are the image features."""
    encoder = Encoder.from_checkpoint(source, choose_device("cpu"))  # type: ignore[arg-type]
    with torch.inference_mode():
        return [tokens.mean(dim=1).double().numpy() for tokens in tokens_by_depth(encoder, images)]


@pytest.mark.parametrize("layer", MATRICES)
def test_spectra_ranks_and_alignment(bundled: Benchmark, weights: dict[str, Weights], layer: str) -> None:
    stored = find_stored("spectra", AVERAGE.id, bundled)
    changes = {name: model[layer] - weights["pretrained"][layer] for name, model in weights.items()}
    if layer == "visual.proj":  # the only matrix that is stored as (d_in, d_out)
        changes = {name: change.T for name, change in changes.items()}
    matrices = {name: changes[name] for name in AVERAGE.experts}
    matrices |= {matrix_spectra.SUM: sum(matrices.values()), matrix_spectra.MERGED: changes["average"]}
    ranks = stored.table("ranks")
    for name, row in ranks[ranks["tensor"] == layer].set_index("matrix").iterrows():
        values = np.linalg.svd(matrices[str(name)], compute_uv=False)
        shares = values**2 / (values**2).sum()
        expected = [np.sqrt((values**2).sum()), np.exp(-(shares * np.log(shares)).sum()), 1 / shares[0], len(values)]
        assert row[["norm", "effective", "stable", "full"]].tolist() == pytest.approx(expected, rel=1e-5)
    left, values, _ = np.linalg.svd(changes["average"], full_matrices=False)
    layers = list(dict.fromkeys(ranks["tensor"]))
    assert stored.array("merged")[layers.index(layer)][: len(values)] == pytest.approx(values, rel=1e-3, abs=1e-5)
    beyond = np.sqrt([(values[count:] ** 2).sum() for count in range(len(values) + 1)])
    basis = left[:, : int(np.argmax(beyond <= 0.05 * beyond[0]))]
    alignment = stored.table("alignment")
    own = alignment[alignment["tensor"] == layer].set_index("expert")
    assert set(own["rank"]) == {basis.shape[1]} and list(own.index) == list(AVERAGE.experts)
    ratios = [np.linalg.norm(basis @ basis.T @ matrices[name]) / np.linalg.norm(matrices[name]) for name in own.index]
    assert own["ratio"].tolist() == pytest.approx(ratios, rel=1e-5)


@pytest.mark.full
def test_products_and_the_map_of_experts(bundled: Benchmark, weights: dict[str, Weights]) -> None:
    stored = find_stored("model_map", AVERAGE.id, bundled)
    models, gram = stored.table("models"), stored.array("gram")
    names = ["pretrained", *AVERAGE.experts, "average"]
    tensors = [name for name in weights["pretrained"] if "logit_scale" not in name]
    points = np.stack([np.concatenate([weights[model][name].ravel() for name in tensors]) for model in names])
    changes = points - points[0]
    rows = [models["model"].tolist().index(AVERAGE.id if name == "average" else name) for name in names]
    assert stored.notes["scalars"] == points.shape[1]
    assert gram[np.ix_(rows, rows)] == pytest.approx(changes @ changes.T, rel=1e-6)
    squares = np.array([[np.square(one - other).sum() for other in points] for one in points])
    centering = np.eye(len(points)) - 1 / len(points)
    values, vectors = np.linalg.eigh(-centering @ squares @ centering / 2)  # Torgerson (1952)
    table, shares = model_map.tabulate_map(models, gram, {}, np.isin(range(len(models)), rows))
    order = table["run"].tolist()
    positions = table[["x", "y"]].to_numpy()[[order.index(models["model"][row]) for row in rows]]
    expected = (vectors * np.sqrt(np.maximum(values, 0)))[:, [-1, -2]]
    expected *= np.sign((expected * positions).sum(axis=0))  # an axis has no sign of its own
    assert positions == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert shares == pytest.approx(values[[-1, -2]] / values.sum(), rel=1e-5)


@pytest.mark.full
def test_losses_at_a_corner_of_a_plane(bundled: Benchmark, tmp_path: Path) -> None:
    assert AVERAGE.recipe is not None
    axes = tuple(Axis(name, (0.0, 1.0)) for name in ("alpha", "beta"))
    made = Sweep(recipes=(AVERAGE.recipe,), axes=axes, kind=PLANE, images=8, through=("pretrained", "land", "merged"))
    store = Store(tmp_path, libraries=())
    run(made, store, bundled)
    planned = sweep_session.plan_sweep(made, bundled)
    rows = sweep_tables.sweep_table(made, planned, read_points(made, store, bundled))
    corner = rows[(rows["x"] == 1) & (rows["y"] == 0)].set_index("task")
    assert len(corner) == len(bundled.tasks)
    for task in ("land", "flags", "kana"):
        images, labels = bundled.load_images(task, "choosing")
        chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:8])
        features = encode(bundled.models()["land"].open("land"), bundled.preprocess(images[chosen]))[-1]
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        logits = bundled.logit_scale * unit @ bundled.load_head(task).double().numpy().T
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), labels[chosen]]
        assert corner.loc[task, "loss"] == pytest.approx(losses.mean(), rel=1e-5)
        assert corner.loc[task, "loss_error"] == pytest.approx(losses.std(ddof=1) / np.sqrt(8), rel=1e-4)
        assert corner.loc[task, "correct"] == (logits.argmax(axis=1) == labels[chosen]).sum()


def unbiased_hsic(first: np.ndarray, second: np.ndarray) -> float:
    """HSIC₁ of features (n, d) and (n, e) with linear kernels (Song et al. 2012, eq. 5)."""
    n, kernels = len(first), [one @ one.T for one in (first, second)]
    own, other = (kernel - np.diag(np.diag(kernel)) for kernel in kernels)
    totals = own.sum() * other.sum() / ((n - 1) * (n - 2))
    return float((np.trace(own @ other) + totals - 2 / (n - 2) * (own @ other).sum()) / (n * (n - 3)))


@pytest.mark.full
def test_cka_at_two_pairs_of_depths(bundled: Benchmark, tmp_path: Path) -> None:
    first, second = (
        next(run for run in LIBRARY.list_runs() if run.title == title)
        for title in ("Pretrained", "Task Arithmetic w/ LwPTV")
    )
    stored = find_stored("cka", f"{first.id}+{second.id}", bundled)
    assert second.recipe is not None and stored.notes["runs"] == [first.id, second.id]
    merged = execute.execute(second.recipe, Store(tmp_path, libraries=()), evaluate=False, context=CPU)
    positions = sample_images(bundled, [task.key for task in bundled.tasks])["land"]
    images = bundled.preprocess(bundled.load_images("land", "choosing")[0][positions])
    models = encode(bundled.open_pretrained(), images), encode(merged.open_models()["merged"], images)
    table = stored.table("cka")
    own = table[(table["over"] == "land") & (table["token"] == "mean")].set_index(["first", "second"])
    for depths in ((2, 5), (7, 4)):
        x, y = models[0][depths[0]], models[1][depths[1]]
        hsic, *norms = (unbiased_hsic(*pair) for pair in ((x, y), (x, x), (y, y)))
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        linear = np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
        assert own.loc[depths, ["linear", "debiased"]].tolist() == pytest.approx(
            [linear, hsic / np.sqrt(norms[0] * norms[1])], abs=1e-4
        )
        assert own.loc[depths, "n"] == len(positions) == 100
