"""Merges that decompose matrices give the same by thin factors as by the whole matrices."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merging.base.numerics.low_rank import LowRank
from merging.methods import registry
from merging.methods.merges import drm, iso_c, iso_cts, knots, tsv_m
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role

CASES = {
    "drm": {},
    "drm, vertical": {"direction": "vertical", "rank_tol": 0.0},
    "tsv_m": {},
    "tsv_m, few": {"rank_fraction": 0.1},
    "iso_c": {},
    "iso_cts": {},
    "iso_cts, own": {"common_fraction": 0.1},
    "knots": {},
    "knots, all": {"density": 1.0, "aggregation": "sum"},
    "core_space, plain": {"rule": "plain"},
}


def thin_slot(height, width, ranks, seed=0):
    """A matrix whose task vectors are products of drawn factors of these ranks."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    factors = tuple(LowRank(draw(height, rank), draw(rank, width)) for rank in ranks)
    vectors = torch.stack([factor.up @ factor.down for factor in factors])
    parameter = Parameter("blocks.0.weight", Role.LINEAR, "weight", "block 0", 0, 0)
    return Slot(parameter, tuple(map(str, range(len(ranks)))), torch.zeros_like(vectors[0]), vectors, factors=factors)


def merged(key, slot):
    method = registry.find_merge(key.partition(",")[0])
    return method.run(slot, method.params.build(CASES[key]), None)


# Of rank one all rows of a task are alike in DRM's space, and which of equal entries are kept is rounding.
@pytest.mark.parametrize("key", CASES)
@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(2, 24),
    width=st.integers(2, 24),
    ranks=st.lists(st.integers(2, 4), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 20),
)
def test_factors_give_what_whole_matrices_give(key, height, width, ranks, seed):
    slot = thin_slot(height, width, ranks, seed)
    found, expected = merged(key, slot), merged(key, slot.with_task_vectors(slot.task_vectors))
    assert found.shape == expected.shape
    assert float((found - expected).norm()) <= 1e-10 * max(float(expected.norm()), 1.0)


@pytest.mark.parametrize("key", ["drm", "knots", "tsv_m", "iso_c", "iso_cts"])
def test_only_small_matrices_are_decomposed(key, monkeypatch):
    def watched(whole):
        def decompose(matrix, *options):
            assert max(matrix.shape[-2:]) <= 4
            return whole(matrix, *options)

        return decompose

    for module, name in (
        (drm, "left_basis"),
        (knots, "left_basis"),
        (tsv_m, "truncated_svd"),
        (iso_cts, "truncated_svd"),
        (iso_c, "polar_factor"),
    ):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    merged(key, thin_slot(9, 7, (2, 2)))
    with pytest.raises(AssertionError):  # whose ranks fill the matrix
        merged(key, thin_slot(9, 7, (4, 3)))
