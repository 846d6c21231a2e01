"""Sign agreement and elections: worked numbers, plain NumPy, invariances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from merging.base.numerics.linear_algebra import left_basis
from merging.base.numerics.sign_election import count_election, elect_sign, trim_at_densities
from merging.methods import registry
from merging.methods.merges.ties import ties
from merging.methods.shared.trimming import TrimThresholds
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role
from merging.study.analysis.drm_joint_space import compute_joint_space
from merging.study.measurements import signs
from merging.study.measurements.signs import (
    agreement_histogram,
    count_votes,
    estimated_seconds,
    inspect_layer,
    mean_agreement,
    random_agreement,
)

WORKED = [[1, -1, 0, 0, 2, 0], [1, 1, 0, 0, -2, 0], [-1, 1, 3, 0, 0, 0], [1, -1, 0, -2, 0, 0]]


def drawn(count: int = 4, out: int = 12, into: int = 7, seed: int = 0) -> torch.Tensor:
    """Task vectors (count, out, into) with something in common."""
    source = torch.Generator().manual_seed(seed)
    common = torch.randn(1, out, into, generator=source, dtype=torch.float64)
    return torch.randn(count, out, into, generator=source, dtype=torch.float64) + 0.3 * common


def naive(values: np.ndarray[Any, Any]) -> tuple[float, list[float]]:
    """Mean agreement, and agreement position by position, of entries (K, *S)."""
    found = []
    for votes in values.reshape(len(values), -1).T:
        p, q = (votes > 0).sum(), (votes < 0).sum()
        if p + q:
            found.append(max(p, q) / (p + q))
    return float(np.mean(found)), found


# Numbers


def test_the_worked_numbers_of_sign_agreement() -> None:
    values = torch.tensor(WORKED, dtype=torch.float64)
    by_position = [mean_agreement(count_votes(values[:, [place]])).mean for place in range(6)]
    assert by_position[:5] == [0.75, 0.5, 1, 1, 0.5]
    assert math.isnan(by_position[5])
    found = mean_agreement(count_votes(values))
    assert (found.mean, found.positions) == (0.75, 5)
    assert found.density == pytest.approx(12 / 24)


def test_random_signs_by_number_of_votes() -> None:
    found = [random_agreement(votes) for votes in range(1, 9)]
    assert found == pytest.approx([1, 0.75, 0.75, 0.6875, 0.6875, 0.65625, 0.65625, 0.636719], abs=5e-7)


@pytest.mark.parametrize(
    ("tasks", "density", "null"),
    [(8, 0.2, 0.847), (8, 0.258, 0.812), (8, 0.5, 0.713), (8, 1.0, 0.637), (5, 0.2, 0.902), (5, 1.0, 0.688)],
)
def test_random_signs_at_a_density(tasks: int, density: float, null: float) -> None:
    counts = np.zeros((tasks + 1, tasks + 1), np.int64)
    for votes in range(tasks + 1):  # where signs are, and not how they agree, decides
        chance = math.comb(tasks, votes) * density**votes * (1 - density) ** (tasks - votes)
        counts[votes, votes] = round(1e9 * chance)
    assert round(mean_agreement(counts).null, 3) == null
    noise = torch.randn(tasks, 400, 400, generator=torch.Generator().manual_seed(1))
    found = mean_agreement(count_votes(next(trim_at_densities(noise, [density]))))
    assert found.null == pytest.approx(null, abs=1.5e-3)
    assert found.density == pytest.approx(density, abs=1e-4)
    assert found.excess == pytest.approx(0, abs=2e-3)


def test_the_histogram_puts_edges_where_they_belong() -> None:
    values = torch.randn(5, 3000, generator=torch.Generator().manual_seed(2)) + 0.2
    values = next(trim_at_densities(values, [0.7]))
    _, each = naive(values.numpy())
    edges = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    places = np.clip(np.searchsorted(edges - 1e-9, each, side="right") - 1, 0, 4)  # 3 of 5 votes are in [0.6, 0.7)
    shares, chances = agreement_histogram(count_votes(values))
    np.testing.assert_allclose(shares, np.bincount(places, minlength=5) / len(each))
    assert shares.sum() == pytest.approx(1)
    assert chances.sum() == pytest.approx(1)


# One layer


@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (40, 5)])
def test_every_space_is_what_its_definition_says(shape: tuple[int, int]) -> None:
    vectors, density = drawn(3, *shape), 0.33  # of the entries DRM keeps round(ρN) + 1, and TIES int(ρN) + 1
    found = inspect_layer(vectors, (density,), rank_tol=0.0)
    for way, matrices in (("h", vectors.numpy()), ("v", vectors.mT.numpy())):
        left, _, right = np.linalg.svd(np.concatenate(matrices, axis=1), full_matrices=False)
        kept, back = [], []
        for number, matrix in enumerate(matrices):
            own = right[:, number * matrix.shape[1] : (number + 1) * matrix.shape[1]]
            sizes = np.abs(own) / np.linalg.norm(own, axis=1, keepdims=True)
            entries = (left.T @ matrix) * (sizes >= np.sort(sizes.ravel())[-(round(density * sizes.size) + 1)])
            kept.append(entries)
            back.append(left @ entries)
        for space, values in ((f"joint_{way}", kept), (f"back_{way}", back)):
            said = mean_agreement(found.votes[space, density])
            assert said.mean == pytest.approx(naive(np.array(values))[0])
            assert said.density == pytest.approx(np.mean(np.array(values) != 0))
        assert found.ranks["hv".index(way)] == left.shape[1]
    assert mean_agreement(found.votes["weights", density]).mean == pytest.approx(
        naive(next(trim_at_densities(vectors, [density])).numpy())[0]
    )


def test_without_pruning_the_way_back_gives_the_task_vectors() -> None:
    vectors = drawn()
    vectors[:, 3] = 0  # a row that nobody changed stays without votes: rounding is none
    for blocks in (vectors, vectors.mT):
        basis = left_basis(blocks, 0.0)
        torch.testing.assert_close(basis @ (basis.T @ blocks), blocks, rtol=0, atol=1e-12)
    found = inspect_layer(vectors, (1.0,), rank_tol=0.0).votes
    for space in ("back_h", "back_v"):
        np.testing.assert_array_equal(found[space, 1.0], found["weights", 1.0])
    assert found["weights", 1.0][0, 0] == vectors.shape[2]


def test_in_single_precision_rounding_is_no_vote() -> None:
    vectors = drawn(4, 60, 40).float()
    vectors[1, :, ::2] = 0  # as half-precision checkpoints have them: an expert's own zeros, where others have none
    vectors[2, 5:30] = 0
    vectors[3].mul_(vectors[3].abs() > 1)
    found, exact = (inspect_layer(some, (1.0, 0.3), rank_tol=0.0).votes for some in (vectors, vectors.double()))
    for space in ("back_h", "back_v"):
        np.testing.assert_array_equal(found[space, 1.0], found["weights", 1.0])
    for key, counts in found.items():
        assert np.abs(counts - exact[key]).sum() <= 4  # entries that are equal but for rounding


def test_spaces_that_are_there_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = drawn()
    spaces = [compute_joint_space("abcd", vectors, vertical) for vertical in (False, True)]
    expected = inspect_layer(vectors, (0.3,), 0.05)
    monkeypatch.delattr(signs, "compute_joint_space")
    found = inspect_layer(vectors, (0.3,), 0.05, spaces=spaces)
    assert found.ranks == expected.ranks
    for key, counts in found.votes.items():
        np.testing.assert_array_equal(counts, expected.votes[key])


def test_the_estimated_time_grows_with_the_layer() -> None:
    small, large = (estimated_seconds(shape) for shape in ((8, 192, 192), (8, 3072, 768)))
    assert 0 < 64 * small < large  # as many entries, and longer products


def test_a_rank_cut_takes_directions_away() -> None:
    vectors = drawn()
    assert inspect_layer(vectors, (1.0,), 0.0).ranks == (12, 7)
    sizes = torch.linalg.svdvals(torch.cat(list(vectors), dim=1))
    assert inspect_layer(vectors, (1.0,), 0.5).ranks[0] == int((sizes > 0.5 * sizes[0]).sum()) < 12


@pytest.mark.parametrize("change", ["experts in another order", "all scaled", "all signs"])
def test_agreement_does_not_depend_on(change: str) -> None:
    vectors = drawn(5)
    changed = {
        "experts in another order": vectors[[3, 0, 4, 2, 1]], "all scaled": 1e-3 * vectors, "all signs": -vectors,
    }[change]  # fmt: skip
    one, other = (inspect_layer(some, (1.0, 0.2)) for some in (vectors, changed))
    for key, counts in one.votes.items():
        np.testing.assert_array_equal(counts, other.votes[key])


def test_the_sign_of_a_singular_vector_changes_nothing() -> None:
    entries = drawn()
    flipped = entries * torch.where(torch.arange(entries.shape[1]) % 3 == 0, -1.0, 1.0)[:, None]
    np.testing.assert_array_equal(count_votes(entries), count_votes(flipped))


def test_equal_experts_agree_and_nobody_loses() -> None:
    same = drawn(1).expand(3, -1, -1)
    found = inspect_layer(same, (0.2,))
    for counts in found.votes.values():
        assert mean_agreement(counts).mean == 1
    np.testing.assert_array_equal(found.elections[0.2].count_survivors(0), found.elections[0.2].kept)


def test_experts_that_changed_nothing_have_no_votes() -> None:
    found = inspect_layer(torch.zeros(3, 4, 5), (1.0, 0.2))
    for counts in found.votes.values():
        said = mean_agreement(counts)
        assert math.isnan(said.mean) and (said.positions, said.density) == (0, 0)
    assert found.elections[0.2].kept.tolist() == [0, 0, 0]


# Elections


def test_the_trim_keeps_what_ties_keeps() -> None:
    for vectors in (drawn(3, 11, 9), drawn(3, 11, 9).round()):  # round numbers tie with each other
        for density, kept in zip(
            (1.0, 0.7, 0.29, 0.05), trim_at_densities(vectors, (1.0, 0.7, 0.29, 0.05)), strict=True
        ):
            for own, left in zip(vectors, kept, strict=True):
                sizes = own.abs().flatten().sort(descending=True).values
                limit = sizes[int(density * 99)] if density < 1 else 0.0
                assert torch.equal(left, own * (own.abs() >= limit))


def test_the_sign_of_the_sum_is_elected() -> None:
    values = torch.tensor(WORKED, dtype=torch.float64)  # sums 2, 0, 3, -2, 0, 0: two exact ties with entries
    found = count_election(values)
    assert found.kept.tolist() == [3, 3, 3, 3] and found.votes == 1
    assert found.count_survivors(0).tolist() == [1, 1, 1, 2]
    assert found.count_survivors(1).tolist() == [2, 2, 2, 2]
    assert found.count_survivors(-1).tolist() == [2, 2, 1, 3]


@pytest.mark.parametrize("density", [1.0, 0.7, 0.29])
@pytest.mark.parametrize("tie_sign", [-1.0, 0.0, 1.0])
def test_what_ties_merges_is_what_survives(density: float, tie_sign: float) -> None:
    vectors = drawn(4, 9, 8)
    vectors[2:] = -vectors[:2].flip(0)
    vectors = vectors.round()
    params = registry.find_merge("ties").params.build({"density": density, "scope": "tensor", "scaling": 1.0})
    slot = Slot(Parameter("w", Role.LINEAR, "w", "block 0", 0, 0), tuple("abcd"), torch.zeros_like(vectors[0]), vectors)
    merged = ties(slot, params, TrimThresholds(None, tie_sign))
    found = inspect_layer(vectors, (density,)).elections[density]
    kept = next(trim_at_densities(vectors, [density]))
    survivors = kept * (kept * elect_sign(kept, tie_sign) > 0)
    torch.testing.assert_close(merged, survivors.sum(dim=0))
    assert found.count_survivors(tie_sign).tolist() == (survivors != 0).flatten(1).sum(dim=1).tolist()
    assert found.tied.any()
