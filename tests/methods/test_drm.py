"""DRM against a naive reference, and what must hold of it whatever the numbers."""

from __future__ import annotations

import itertools

import pytest
import torch
from naive_merges import SHAPES, assert_same, draw, low_rank, naive_drm, orthogonal, run

from merging.base.numerics.linear_algebra import left_basis
from merging.methods.merges import drm
from merging.models.families import Role


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("direction", ["horizontal", "vertical"])
def test_drm_with_every_combination_of_switches(shape, direction):
    deltas = draw(3, *shape)
    flags = (True, False)
    for renorm, elect, disjoint, pruning in itertools.product(flags, flags, flags, ("joint", "individual")):
        options = {"renorm": renorm, "elect": elect, "disjoint": disjoint, "pruning": pruning, "direction": direction}
        for density, rank_tol in ((0.2, 0.01), (0.37, 0.5), (1.0, 0.01)):
            options |= {"density": density, "rank_tol": rank_tol}
            assert_same(run("drm", deltas, scaling=0.7, **options), 0.7 * naive_drm(deltas, **options))


@pytest.mark.parametrize("direction", ["horizontal", "vertical"])
@pytest.mark.parametrize("experts", ["low rank", "one zero", "all zero"])
def test_drm_of_poor_experts(direction, experts):
    deltas = low_rank(2, 3, 9, 6) if experts == "low rank" else draw(3, 9, 6)
    if experts != "low rank":
        deltas[1 if experts == "one zero" else slice(None)] = 0
    for rank_tol in (0.0, 0.01):
        found = run("drm", deltas, direction=direction, rank_tol=rank_tol)
        assert_same(found, naive_drm(deltas, direction, rank_tol=0.01) if deltas.any() else deltas[0])


@pytest.mark.parametrize("direction", ["horizontal", "vertical"])
def test_drm_turns_and_scales_with_its_experts(direction):
    deltas, plain = draw(3, 9, 6), run("drm", draw(3, 9, 6), direction=direction)
    left, right = (orthogonal(9), None) if direction == "horizontal" else (None, orthogonal(6))
    turned = left @ deltas if left is not None else deltas @ right
    expected = left @ plain if left is not None else plain @ right
    assert_same(run("drm", turned, direction=direction), expected)
    for factor in (1e-6, -3.0, 1e4):
        assert_same(run("drm", factor * deltas, direction=direction), factor * plain)


def test_drm_does_not_depend_on_the_signs_of_basis_vectors(monkeypatch):
    """Not even where the votes of two opposite experts cancel exactly."""
    deltas = draw(3, 9, 6)
    deltas[1] = -deltas[0]
    plain = run("drm", deltas)
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, -1.0], dtype=torch.float64)

    def flipped(*args):
        basis = left_basis(*args)
        return basis * signs[: basis.shape[1]]

    monkeypatch.setattr(drm, "left_basis", flipped)
    assert_same(run("drm", deltas), plain, 1e-12)
    assert not run("drm", deltas[:2]).any()


def test_drm_with_everything_kept():
    deltas = draw(3, 9, 6)
    full = {"density": 1.0, "rank_tol": 0.0}
    assert_same(run("drm", deltas[:1], **full), deltas[0])
    assert_same(run("drm", deltas, elect=False, **full), deltas.mean(dim=0))
    assert_same(run("drm", deltas, elect=False, disjoint=False, **full), deltas.mean(dim=0))
    assert float((run("drm", deltas, **full) - deltas.mean(dim=0)).norm()) > 0.1  # not the mean of raw scalars


@pytest.mark.parametrize("dtype,tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_drm_adds_experts_whose_outputs_are_orthogonal(dtype, tolerance):
    """Rows that an expert has no part in hold only rounding, which must not count in the mean."""
    turn = orthogonal(9)
    deltas = torch.stack([turn[:, at : at + 3] @ draw(3, 6, seed=at) for at in (0, 3, 6)]).to(dtype)
    for options in ({}, {"renorm": False}, {"elect": False}):
        assert_same(run("drm", deltas, density=1.0, **options), deltas.sum(dim=0), tolerance)


def test_drm_keeps_what_the_convention_says():
    """round(ρN) + 1 of all tasks' entries, or of each task's."""
    deltas = draw(1, 9, 6)
    for density in (0.05, 0.2, 0.73):
        kept = left_basis(deltas, 0.0).T @ run("drm", deltas, density=density, rank_tol=0.0)
        assert int((kept.abs() > 1e-12).sum()) == round(density * kept.numel()) + 1


@pytest.mark.parametrize("pruning", ["joint", "individual"])
def test_drm_of_equal_experts_is_drm_of_one(pruning):
    delta = draw(1, 8, 5)
    assert_same(run("drm", delta.expand(4, -1, -1), pruning=pruning), run("drm", delta, pruning=pruning))


def test_drm_orients_projections_by_their_names():
    """``proj`` is stored (d_in, d_out), Hugging Face's ``visual_projection.weight`` (d_out, d_in): one linear map."""
    deltas = draw(3, 4, 9)  # as a weight
    expected = naive_drm(deltas)
    for name in ("proj", "visual.proj"):
        assert_same(run("drm", deltas.mT, name, Role.PROJECTION), expected.T)
    assert_same(run("drm", deltas, "visual_projection.weight", Role.PROJECTION), expected)


@pytest.mark.parametrize("role", [Role.EMBEDDING, Role.SHIFT, Role.NORM_SCALE, Role.CONV])
def test_drm_averages_everything_else(role):
    deltas = draw(3, 4, 9)
    assert_same(run("drm", deltas, "visual.positional_embedding", role, scaling=0.6), 0.6 * deltas.mean(dim=0))
