"""Numbers of pairs of experts before a merge: constructed subspaces and quadratic losses, and plain numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from merging.base.numerics.linear_algebra import Factors
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.recipes.presets import find_preset
from merging.study import measure
from merging.study.partners.predictors import (
    IMAGES,
    PAIRS,
    SEED,
    ImagePredictors,
    WeightPredictors,
    build_pair_table,
    compare_on_images,
    compare_weights,
    effective_rank,
    hold_energy,
    list_predictors,
    overlap_experts,
)
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

CPU = torch.device("cpu")
FC = "visual.transformer.resblocks.1.mlp.c_fc.weight"
States = tuple[tiny.StateDict, dict[str, tiny.StateDict]]


@pytest.fixture(scope="module")
def family() -> States:
    return tiny.family()


@pytest.fixture(scope="module")
def weights(family: States) -> WeightPredictors:
    base, experts = family
    return compare_weights(tiny.checkpoint(base), {name: tiny.checkpoint(one) for name, one in experts.items()}, CPU)


@pytest.fixture(scope="module")
def images(family: States, tiny_benchmark: Benchmark) -> ImagePredictors:
    base, experts = family
    checkpoints = {name: tiny.checkpoint(one) for name, one in experts.items()}
    return compare_on_images(tiny.checkpoint(base), checkpoints, tiny_benchmark.labeled_exemplars(6), CPU)


def vector(family: States, name: str, tensor: str) -> np.ndarray:
    base, experts = family
    return np.asarray((experts[name][tensor] - base[tensor]).double().numpy())


def test_a_containing_subspace_overlaps_whole_and_an_orthogonal_one_not_at_all() -> None:
    basis = torch.linalg.qr(torch.randn(10, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    columns = [basis[:, :2], basis[:, :4], basis[:, 2:], basis[:, :0]]
    rotation = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    columns[0] = columns[0] @ rotation
    right, left = overlap_experts([Factors(one, torch.ones(one.shape[1]), one.T) for one in columns])
    expected = [[1, 1, 0, 0], [0.5, 1, 0.5, 0], [0, 0.5, 1, 0], [np.nan] * 4]
    assert right == pytest.approx(np.array(expected), abs=1e-12, nan_ok=True)
    assert left == pytest.approx(right, abs=1e-12, nan_ok=True)


def test_ranks_of_planted_singular_values() -> None:
    assert effective_rank(torch.ones(5)) == pytest.approx(5)
    assert effective_rank(torch.tensor([3.0, 0.0, 0.0])) == pytest.approx(1)
    values = torch.tensor([2.0, 1.0, 1.0])
    shares = np.array([4, 1, 1]) / 6
    assert effective_rank(values) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert [hold_energy(values, share) for share in (0.5, 0.8, 0.9)] == [1, 2, 3]
    assert hold_energy(torch.zeros(3)) == hold_energy(torch.zeros(0)) == effective_rank(torch.zeros(3)) == 0


def test_weights_against_plain_numpy(family: States, weights: WeightPredictors) -> None:
    base, experts = family
    names = list(experts)
    flat = [np.concatenate([vector(family, name, tensor).ravel() for tensor in base]) for name in names]
    first, second = flat[0], flat[2]
    lengths = np.linalg.norm(first), np.linalg.norm(second)
    assert weights.cosine[0, 2] == pytest.approx(first @ second / lengths[0] / lengths[1])
    assert weights.log_norm_ratio[0, 2] == pytest.approx(np.log(lengths[1] / lengths[0]))
    changed = (first != 0) & (second != 0)
    assert weights.conflict[0, 2] == pytest.approx((np.sign(first) != np.sign(second))[changed].mean() - 0.5)
    block = [tensor for tensor in base if "resblocks.1." in tensor]
    ours, theirs = (np.concatenate([vector(family, name, one).ravel() for one in block]) for name in names[:2])
    cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
    assert weights.section_cosine[weights.sections.index("block 1"), 0, 1] == pytest.approx(cosine)


def test_overlaps_against_plain_numpy(family: States, weights: WeightPredictors) -> None:
    place, names = weights.matrices.index(FC), list(family[1])
    (_, values, right), (_, other_values, other_right) = (
        np.linalg.svd(vector(family, name, FC), full_matrices=False) for name in names[:2]
    )
    ranks = [int((np.cumsum(one**2) < 0.9 * (one**2).sum()).sum()) + 1 for one in (values, other_values)]
    expected = np.square(right[: ranks[0]] @ other_right[: ranks[1]].T).sum() / ranks[0]
    assert weights.right[place, 0, 1] == pytest.approx(expected)
    assert [weights.right[place, 0, 0], weights.left[place, 1, 1]] == pytest.approx([1, 1])
    shares = values**2 / (values**2).sum()
    assert weights.effective_rank[place, 0] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert weights.energy[place, 0] == pytest.approx(np.square(vector(family, names[0], FC)).sum())
    energy = weights.energy[:, 0] / weights.energy[:, 0].sum()
    assert weights.average_matrices(weights.left)[0, 1] == pytest.approx(energy @ weights.left[:, 0, 1])


def test_the_projection_has_its_sides_as_other_matrices(family: States, weights: WeightPredictors) -> None:
    place = weights.matrices.index("visual.proj")
    bases = [np.linalg.svd(vector(family, name, "visual.proj").T)[2] for name in list(family[1])[:2]]
    values = [np.linalg.svd(vector(family, name, "visual.proj"))[1] for name in list(family[1])[:2]]
    ranks = [hold_energy(torch.from_numpy(one)) for one in values]
    overlap = np.square(bases[0][: ranks[0]] @ bases[1][: ranks[1]].T).sum() / ranks[0]
    assert weights.right[place, 0, 1] == pytest.approx(overlap)


def test_alignment_is_the_slope_of_the_loss(family: States, images: ImagePredictors, tiny_benchmark: Benchmark) -> None:
    base, experts = family
    names, step = list(experts), 1e-3
    task = tiny_benchmark.labeled_exemplars(6)[names[0]]
    assert task.head is not None and task.labels is not None

    def loss(factor: float) -> float:
        state = {
            tensor: experts[names[0]][tensor] + factor * (experts[names[1]][tensor] - base[tensor]) for tensor in base
        }
        with torch.inference_mode():
            features = Encoder.from_checkpoint(tiny.checkpoint(state), CPU)(task.images).double().numpy()
        logits = task.logit_scale * features / np.linalg.norm(features, axis=1)[:, None] @ task.head.double().numpy().T
        logits -= logits.max(axis=1, keepdims=True)
        right = logits[np.arange(len(logits)), task.labels.numpy()]
        return float((np.log(np.exp(logits).sum(axis=1)) - right).mean())

    slope = (loss(step) - loss(-step)) / (2 * step)
    assert images.alignment[0, 1] == pytest.approx(slope, rel=0.02)
    assert np.isfinite(images.alignment).all() and (images.alignment[0] != images.alignment[1]).all()


def test_interference_against_rows_by_hand(family: States, images: ImagePredictors, tiny_benchmark: Benchmark) -> None:
    experts = family[1]
    names = list(experts)
    rows: dict[str, list[np.ndarray]] = {}
    encoder = Encoder.from_checkpoint(tiny.checkpoint(experts[names[1]]), CPU)
    with torch.inference_mode():
        encoder(
            tiny_benchmark.labeled_exemplars(6)[names[1]].images,
            lambda name, entering: rows.setdefault(name, []).append(entering.double().numpy()),
        )
    total, count = 0.0, 0
    for name, entering in rows.items():
        x, own, other = np.concatenate(entering), vector(family, names[1], name), vector(family, names[2], name)
        if own.ndim > 1:
            turned = [one if name == "visual.proj" else one.reshape(len(one), -1).T for one in (other, own)]
            total += np.divide(*(np.square(x @ one).sum() for one in turned))
            count += 1
    assert images.interference[1, 2] == pytest.approx(total, rel=1e-5)
    assert np.diagonal(images.interference) == pytest.approx(count)


def test_pretrained_accuracy_is_of_the_training_images(
    family: States, images: ImagePredictors, tiny_benchmark: Benchmark
) -> None:
    name, task = next(iter(tiny_benchmark.labeled_exemplars(6).items()))
    assert task.head is not None and task.labels is not None
    with torch.inference_mode():
        features = Encoder.from_checkpoint(tiny.checkpoint(family[0]), CPU)(task.images)
    right = (features @ task.head.T).argmax(dim=1) == task.labels
    assert images.pretrained[images.experts.index(name)] == pytest.approx(float(right.double().mean()))


def test_an_expert_that_did_not_move_is_no_error(family: States) -> None:
    base, experts = family
    checkpoints = {"moved": tiny.checkpoint(next(iter(experts.values()))), "still": tiny.checkpoint(base)}
    table = build_pair_table(compare_weights(tiny.checkpoint(base), checkpoints, CPU)).set_index("first")
    assert table.loc["still", ["right", "left", "first_rank"]].isna().all() and table.loc["moved", "first_rank"] > 0
    assert table.loc["moved", ["log_norm_ratio", "right"]].tolist() == [-np.inf, 0] and table["cosine"].isna().all()


def test_the_table_is_of_ordered_pairs(weights: WeightPredictors, images: ImagePredictors) -> None:
    table = build_pair_table(weights, images).set_index(["first", "second"])
    first, second = weights.experts[3], weights.experts[1]
    row: Any = table.loc[(first, second)]
    assert len(table) == 12
    assert row["alignment"] == images.alignment[3, 1] and row["interference"] == images.interference[3, 1]
    assert row["pretrained"] == images.pretrained[3] and row["log_norm_ratio"] == weights.log_norm_ratio[3, 1]
    assert row["cosine block 0"] == weights.section_cosine[weights.sections.index("block 0"), 3, 1]
    ranks = weights.average_matrices(weights.effective_rank)
    assert (row["first_rank"], row["second_rank"]) == (ranks[3], ranks[1])


def test_the_measurement_is_of_the_experts_with_its_images(tiny_benchmark: Benchmark, tmp_path: Path) -> None:
    store = Store(tmp_path, libraries=())
    recipe = find_preset("weight_averaging").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, store, benchmark=tiny_benchmark, evaluate=False)
    stored = measure.measure("predictors", store, tiny_benchmark, run.id, context=Context(device="cpu"))
    opened = open_inputs(recipe)
    exemplars = tiny_benchmark.labeled_exemplars(IMAGES, SEED)
    expected = build_pair_table(
        compare_weights(opened.pretrained, opened.experts, CPU),
        compare_on_images(opened.pretrained, opened.experts, exemplars, CPU),
    )
    assert list_predictors(stored.table(PAIRS)) == list_predictors(expected)
    assert stored.table(PAIRS)[["first", "second"]].equals(expected[["first", "second"]])
    columns = list_predictors(expected)
    assert stored.table(PAIRS)[columns].to_numpy() == pytest.approx(expected[columns].to_numpy(), rel=1e-3, nan_ok=True)
    sizes = [len(one.images) for one in exemplars.values()]
    assert stored.notes == {"exemplars": max(sizes), "fewest_exemplars": min(sizes), "exemplar_seed": SEED}
