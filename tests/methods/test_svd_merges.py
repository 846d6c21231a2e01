"""TSV-M, Iso-C and Iso-CTS against full decompositions, and progress inside a tensor."""

from __future__ import annotations

import common_checks
import pytest
import torch
from naive_merges import (
    LINEAR,
    NAIVE,
    SHAPES,
    SVD_MERGES,
    assert_same,
    draw,
    low_rank,
    naive_iso_c,
    naive_iso_cts,
    orthogonal,
    run,
    svd,
)

import merging
from merging.base.errors import Cancelled
from merging.base.numerics import linear_algebra
from merging.models.families import Role

# --- TSV-M, Iso-C, Iso-CTS -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experts", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("key", SVD_MERGES)
def test_svd_merges_equal_full_decompositions(key, experts):
    options = {"tsv_m": "rank_fraction", "iso_cts": "common_fraction"}
    for shape in SHAPES:
        for deltas in (draw(experts, *shape), low_rank(2, experts, *shape)):
            assert_same(run(key, deltas, scaling=0.7), 0.7 * NAIVE[key](deltas))
            for value in (0.3, 0.5, 1.0) if key in options else ():
                found = run(key, deltas, scaling=1.0, **{options[key]: value})
                assert_same(found, NAIVE[key](deltas, **{options[key]: value}), 1e-8)
    if key == "iso_cts":
        deltas = draw(experts, 9, 6)
        assert_same(run(key, deltas, scaling=1.0, common_fraction=0.0), naive_iso_cts(deltas, 0.0))


@pytest.mark.parametrize("key", SVD_MERGES)
def test_svd_merges_of_zero_experts(key):
    deltas = draw(3, 9, 6)
    assert not run(key, torch.zeros_like(deltas)).any()
    deltas[1] = 0
    assert_same(run(key, deltas, scaling=1.0), NAIVE[key](deltas))


@pytest.mark.parametrize("key", SVD_MERGES)
def test_svd_merges_turn_and_scale_with_their_experts(key):
    for height, width in ((9, 6), (6, 9)):
        deltas = draw(3, height, width)
        left, right, plain = orthogonal(height, 5), orthogonal(width, 6), run(key, draw(3, height, width))
        assert_same(run(key, left @ deltas @ right), left @ plain @ right)
        assert_same(run(key, deltas.flip(0)), plain)
        for factor in (1e-6, -3.0, 1e4):
            assert_same(run(key, factor * deltas), factor * plain)
        if key != "iso_cts":
            assert_same(run(key, deltas.mT), plain.T)


@pytest.mark.parametrize("key", SVD_MERGES)
def test_svd_merges_take_two_dimensional_tensors_as_stored_and_average_the_rest(key):
    deltas = draw(3, 6, 4)
    for name, role in (("proj", Role.PROJECTION), ("positional_embedding", Role.EMBEDDING)):
        assert_same(run(key, deltas, name, role, scaling=1.0), NAIVE[key](deltas))
    for other in (draw(3, 7), draw(3, 6, 3, 2, 2)):
        assert_same(run(key, other, scaling=0.4), 0.4 * other.mean(dim=0))


def test_tsv_m_of_one_expert_is_its_best_approximation():
    deltas = draw(1, 9, 6)
    assert_same(run("tsv_m", deltas), deltas[0])
    left, values, right = svd(deltas[0], 3)
    assert_same(run("tsv_m", deltas, rank_fraction=0.5), left * values @ right)


def test_tsv_m_of_equal_experts_truncates_one():
    delta = draw(1, 9, 6)
    left, values, right = svd(delta[0], 2)
    merged = run("tsv_m", delta.expand(3, -1, -1))
    assert_same(merged, left * values @ right)


def test_tsv_m_adds_orthogonal_experts_and_keeps_every_singular_value():
    left, right = orthogonal(9, 1), orthogonal(6, 2)
    values = draw(6).abs() + 0.5
    parts = [left[:, at : at + 2] * values[at : at + 2] @ right[at : at + 2] for at in (0, 2, 4)]
    assert_same(run("tsv_m", torch.stack(parts)), sum(parts))
    deltas = draw(3, 9, 6)
    kept = torch.cat([svd(delta, 2)[1] for delta in deltas]).sort(descending=True).values
    assert_same(torch.linalg.svdvals(run("tsv_m", deltas)), kept)


def test_iso_c_has_a_flat_spectrum_of_the_same_sum():
    deltas = draw(3, 9, 6)
    once = run("iso_c", deltas, scaling=1.0)
    level = torch.linalg.svdvals(deltas.sum(dim=0)).mean()
    assert_same(torch.linalg.svdvals(once), level.expand(6))
    assert_same(run("iso_c", once[None], scaling=1.0), once)
    assert_same(run("iso_c", deltas.sum(dim=0, keepdim=True), scaling=1.0), once)
    assert_same(run("iso_c", deltas[:1].expand(4, -1, -1)), 4 * run("iso_c", deltas[:1]))


def test_iso_cts_between_one_expert_and_equal_ones():
    deltas = draw(3, 20, 15)
    assert_same(run("iso_cts", deltas, common_fraction=1.0), run("iso_c", deltas))
    for share in (0.0, 0.5, 0.8):
        assert_same(run("iso_cts", deltas[:1], common_fraction=share), run("iso_c", deltas[:1]))
    # Three equal experts with 12 + 3 · 1 directions: the 13 that exist, at the level of all that were averaged.
    left, values, right = svd(deltas[0], 13)
    expected = 3 / 15 * values.sum() * left @ right
    assert_same(run("iso_cts", deltas[:1].expand(3, -1, -1), scaling=1.0), expected)


@pytest.mark.parametrize("full,common,own", [(768, 616, 19), (1024, 816, 26), (512, 408, 13), (50, 42, 1)])
def test_iso_cts_shares_the_directions_as_published(full, common, own):
    from merging.methods.merges.iso_cts import direction_counts

    assert direction_counts(full, 8, 0.8) == (common, own)
    assert direction_counts(8, 20, 0.8) == (8, 0)


# --- progress and cancel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["drm", "tsv_m", "iso_cts", "wudi"])
def test_progress_moves_and_cancel_works_inside_a_tensor(key):
    base, experts = common_checks.family()
    reports = []
    merging.merge(base, experts, key, device="cpu", progress=reports.append)
    inside = [report.done for report in reports if report.detail == LINEAR]
    assert len(set(inside)) > 1 and inside == sorted(inside)

    def after_the_first_report_on_this_tensor():
        return bool(reports) and reports[-1].detail == LINEAR

    reports.clear()
    with pytest.raises(Cancelled):
        merging.merge(
            base, experts, key, device="cpu", progress=reports.append, cancel=after_the_first_report_on_this_tensor
        )
    assert [report.detail for report in reports].count(LINEAR) == 1 and reports[-1].done < inside[-1]


def test_ill_conditioned_sums_take_the_full_decomposition(monkeypatch):
    """The Gram matrix of these would lose ten digits; with it alone the result must be visibly worse."""
    spectrum = torch.logspace(0, -7, 6, dtype=torch.float64)
    deltas = (orthogonal(9, 1)[:, :6] * spectrum @ orthogonal(6, 2))[None]
    assert_same(run("iso_c", deltas), 1.5 * naive_iso_c(deltas), 1e-8)
    monkeypatch.setattr(linear_algebra, "MIN_EIGENVALUE_SHARE", 0.0)
    with pytest.raises(AssertionError):
        assert_same(run("iso_c", deltas), 1.5 * naive_iso_c(deltas), 1e-8)
