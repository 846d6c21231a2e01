"""The merges that factorize matrices, against naive references and against what must hold whatever the numbers."""

from __future__ import annotations

import itertools

import common_checks
import pytest
import torch

import merging
from merging.checkpoints.families import Parameter, Role
from merging.errors import Cancelled, MergingError
from merging.methods import registry
from merging.methods.merges import drm
from merging.methods.merges.wudi import _normal_equations
from merging.methods.slot import Slot
from merging.numerics import linear_algebra
from merging.numerics.linear_algebra import left_basis, lower_gram, polar, truncated_svd

LINEAR = "visual.transformer.resblocks.0.mlp.c_fc.weight"
SVD_MERGES = ("tsv_m", "iso_c", "iso_cts")
SHAPES = ((9, 6), (6, 9), (7, 7), (14, 3), (3, 14))  # the last two with d_out > K·d_in, or d_in > K·d_out, for K = 3


def draw(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def orthogonal(size, seed=0):
    return torch.linalg.qr(draw(size, size, seed=seed)).Q


def low_rank(rank, *shape, seed=0):
    """Matrices (K, m, n) of this rank."""
    *lead, height, width = shape
    return draw(*lead, height, rank, seed=seed) @ draw(*lead, rank, width, seed=seed + 1)


def run(key, vectors, name=LINEAR, role=Role.LINEAR, tick=lambda share: None, **params):
    """One merge on one tensor."""
    method = registry.merge(key)
    experts = tuple(str(k) for k in range(len(vectors)))
    parameter = Parameter(name, role, "", "", None, 0)
    slot = Slot(parameter, experts, torch.zeros_like(vectors[0]), vectors, tick=tick)
    return method.run(slot, method.params.build(params), None)


def assert_same(found, expected, tolerance=1e-9):
    assert found.shape == expected.shape
    assert float((found - expected).norm()) <= tolerance * max(float(expected.norm()), 1e-30)


# --- naive references: full decompositions, straight from the formulas ------------------------------------------------


def svd(matrix, count=None):
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    count = min(len(values) if count is None else count, int((values > 1e-10 * values[:1]).sum()))
    return left[:, :count], values[:count], right[:count]


def naive_polar(matrix):
    left, _, right = svd(matrix)
    return left @ right


def naive_drm(
    deltas, direction="horizontal", density=0.2, rank_tol=0.01, renorm=True, elect=True, disjoint=True, pruning="joint"
):
    """From the singular vectors of the concatenated matrices, entry by entry."""
    deltas = deltas if direction == "horizontal" else deltas.mT
    left, values, right = torch.linalg.svd(torch.cat(list(deltas), dim=1), full_matrices=False)
    keep = values > rank_tol * values[0]
    left, values, right = left[:, keep], values[keep], right[keep]
    rows = torch.stack(right.chunk(len(deltas), dim=1))  # (K, r, n)
    rows = torch.where(rows.abs() > 1e-13, rows, 0)
    sizes = values[None, :, None].expand(len(deltas), -1, 1)
    if renorm:
        lengths = rows.norm(dim=2, keepdim=True)
        rows, sizes = torch.where(lengths > 0, rows / lengths, 0), sizes * lengths
    groups = [rows] if pruning == "joint" else list(rows)
    limits = []
    for group in groups:
        ordered = group.abs().flatten().sort().values
        limits.append(ordered[max(len(ordered) - round(density * len(ordered)) - 1, 0)] if density < 1 else 0.0)
    limits = torch.tensor(limits, dtype=rows.dtype).reshape(-1, 1, 1)
    entries = sizes * torch.where(rows.abs() >= limits, rows, 0)
    if elect:
        entries = torch.where(entries.sign() == entries.sum(dim=0).sign(), entries, 0)
    count = (entries != 0).sum(dim=0).clamp(min=1) if disjoint else len(deltas)
    merged = left @ (entries.sum(dim=0) / count)
    return merged if direction == "horizontal" else merged.T


def naive_tsv_m(deltas, rank_fraction=None):
    full = min(deltas.shape[1:])
    count = full // len(deltas) if rank_fraction is None else int(full * rank_fraction)
    parts = [svd(delta, max(count, 1)) for delta in deltas]
    left, right = torch.cat([p[0] for p in parts], dim=1), torch.cat([p[2] for p in parts])
    return naive_polar(left) @ torch.diag(torch.cat([p[1] for p in parts])) @ naive_polar(right)


def naive_iso_c(deltas):
    left, values, right = svd(deltas.sum(dim=0))
    return values.sum() / min(deltas.shape[1:]) * left @ right


def naive_iso_cts(deltas, common_fraction=0.8):
    full, experts = min(deltas.shape[1:]), len(deltas)
    own = round((full - int(full * common_fraction)) / experts)
    own = (full - int(full * common_fraction)) // experts if own * experts > full else own
    common = svd(deltas.sum(dim=0), full - own * experts)
    parts = []
    for delta in deltas:
        residual = delta - common[0] @ common[0].T @ delta
        parts.append(svd(residual * (residual.norm() > 1e-10 * delta.norm()), own))
    parts.append(common)
    left, right = torch.cat([p[0] for p in parts], dim=1), torch.cat([p[2] for p in parts])
    return torch.cat([p[1] for p in parts]).sum() / full * naive_polar(left) @ naive_polar(right)


NAIVE = {"tsv_m": naive_tsv_m, "iso_c": naive_iso_c, "iso_cts": naive_iso_cts}


def naive_wudi(deltas, steps, lr):
    """Adam, as its paper writes it, on the loss itself."""
    merged = deltas.sum(dim=0)
    first, second = torch.zeros_like(merged), torch.zeros_like(merged)
    for step in range(1, steps + 1):
        at = merged.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(interference(at, deltas), at)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        merged = merged - lr * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)) ** 0.5 + 1e-8)
    return merged


def interference(merged, deltas):
    return sum(((merged - d) @ d.T).square().sum() / d.square().sum() for d in deltas)


# --- the shared linear algebra ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*SHAPES, (1, 1), (130, 5)])
def test_truncated_decompositions_at_every_condition(shape):
    """From well conditioned, where the Gram matrix serves, to singular values of 1e-9 and none at all."""
    full = min(shape)
    for smallest in (0.5, 1e-2, 4e-3, 2e-3, 1e-5, 1e-9):
        spectrum = torch.logspace(0, torch.log10(torch.tensor(smallest)).item(), full, dtype=torch.float64)
        left, right = orthogonal(shape[0], 1)[:, :full], orthogonal(shape[1], 2)[:, :full]
        matrix = left * spectrum @ right.T
        assert_same(polar(matrix), left @ right.T, max(1e-10, 1e-14 / smallest))
        for count in {1, full // 2, full}:
            found = truncated_svd(matrix, count)
            assert_same(found.values, spectrum[:count], 1e-10)
            assert_same(
                found.left * found.values @ found.right, left[:, :count] * spectrum[:count] @ right[:, :count].T
            )


@pytest.mark.parametrize("shape", SHAPES)
def test_directions_that_do_not_exist_are_left_out(shape):
    matrix = low_rank(2, *shape)
    found = truncated_svd(matrix, 3)
    assert len(found.values) == 2 and found.left.shape == (shape[0], 2) and found.right.shape == (2, shape[1])
    assert torch.linalg.matrix_rank(polar(matrix)) == 2
    assert_same(polar(matrix), naive_polar(matrix))
    assert left_basis(matrix[None], 0.0).shape[1] == 2
    nothing = torch.zeros(shape, dtype=torch.float64)
    assert not polar(nothing).any() and len(truncated_svd(nothing, 2).values) == 0
    assert left_basis(nothing[None], 0.01).shape == (shape[0], 0)


def test_empty_matrices_have_empty_factors():
    for shape in ((0, 4), (4, 0), (0, 0)):
        empty = torch.zeros(shape, dtype=torch.float64)
        assert polar(empty).shape == shape and len(truncated_svd(empty, 1).values) == 0
        for key in ("drm", *SVD_MERGES, "wudi"):
            assert run(key, empty.expand(3, *shape)).shape == shape


def test_the_gram_matrix_is_computed_in_double_precision():
    blocks = draw(3, 11, 4).float()
    expected = sum(block.double() @ block.double().T for block in blocks)
    found = lower_gram(blocks)
    assert found.dtype == torch.float64
    assert_same(found.tril(), expected.tril(), 1e-15)


@pytest.mark.parametrize("key", ["drm", *SVD_MERGES])
def test_numbers_whose_squares_overflow_are_refused(key):
    with pytest.raises(MergingError, match="too large to be factorized"):
        run(key, 1e200 * draw(3, 9, 6))


@pytest.mark.parametrize("shape", SHAPES)
def test_bases_decompose_the_smaller_side_only(shape, monkeypatch):
    sides, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda gram: sides.append(len(gram)) or eigh(gram))
    left_basis(draw(3, *shape), 0.01)
    assert sides == [min(shape[0], 3 * shape[1])]


@pytest.mark.parametrize("shape", SHAPES)
def test_bases_span_the_matrices_whichever_side_is_smaller(shape):
    blocks = draw(3, *shape)
    basis = left_basis(blocks, 0.0)
    assert basis.shape == (shape[0], min(shape[0], 3 * shape[1]))
    assert_same(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64), 1e-12)
    assert_same(basis @ (basis.T @ blocks), blocks, 1e-12)


# --- DRM -------------------------------------------------------------------------------------------------------------


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
    from merging.methods.merges.iso_cts import _counts

    assert _counts(full, 8, 0.8) == (common, own)
    assert _counts(8, 20, 0.8) == (8, 0)


# --- WUDI ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lr", [1e-5, 1e-2])
def test_wudi_is_adam_on_the_loss(lr):
    for deltas in (draw(3, 6, 9), draw(2, 9, 4), low_rank(2, 4, 6, 6)):
        assert_same(run("wudi", deltas, steps=40, lr=lr, scaling=0.8), 0.8 * naive_wudi(deltas, 40, lr))


def test_wudi_has_the_gradient_of_the_loss():
    deltas, at = draw(3, 6, 9), draw(6, 9, seed=3).requires_grad_()
    interference(at, deltas).backward()
    total, target = _normal_equations(deltas)
    assert_same(2 * (at.detach() @ total - target), at.grad, 1e-13)


def test_wudi_without_steps_or_rivals():
    deltas = draw(3, 17, 23)
    assert torch.equal(run("wudi", deltas, steps=0), deltas.sum(dim=0))
    deltas = deltas.float()  # in which Adam would amplify what rounding leaves of the gradient
    assert torch.equal(run("wudi", deltas[:1]), deltas[0])
    deltas[::2] = 0
    assert torch.equal(run("wudi", deltas), deltas[1])
    assert not run("wudi", torch.zeros_like(deltas)).any()


def test_wudi_leaves_a_zero_expert_out():
    deltas = draw(3, 6, 9)
    deltas[1] = 0
    assert_same(run("wudi", deltas, lr=1e-3), run("wudi", deltas[::2], lr=1e-3), 1e-12)


def test_wudi_reduces_interference():
    deltas = draw(1, 6, 9).expand(3, -1, -1)
    distances = [float((run("wudi", deltas, lr=1e-3, steps=n) - deltas[0]).norm()) for n in (0, 100, 300)]
    assert distances == sorted(distances, reverse=True)
    deltas = draw(4, 6, 9)
    losses = [float(interference(run("wudi", deltas, lr=1e-3, steps=n), deltas)) for n in (0, 30, 300)]
    assert losses == sorted(losses, reverse=True)


def test_wudi_hardly_moves_orthogonal_experts():
    right = orthogonal(9)
    deltas = torch.stack([draw(6, 3, seed=at) @ right[at : at + 3] for at in (0, 3, 6)])
    assert float((run("wudi", deltas, lr=1e-4) - deltas.sum(dim=0)).abs().max()) <= 2e-4


def test_wudi_permutes_and_flips_with_its_experts():
    deltas = draw(3, 6, 9)
    rows, columns = [3, 0, 5, 1, 4, 2], [8, 2, 4, 0, 6, 1, 7, 3, 5]
    plain = run("wudi", deltas, lr=1e-3)
    assert_same(run("wudi", deltas[:, rows][:, :, columns], lr=1e-3), plain[rows][:, columns])
    assert_same(run("wudi", -deltas, lr=1e-3), -plain, 1e-12)


def test_wudi_treats_linear_weights_only():
    deltas = draw(3, 6, 4)
    for name, role in (("proj", Role.PROJECTION), ("positional_embedding", Role.EMBEDDING), ("x.bias", Role.SHIFT)):
        assert not run("wudi", deltas, name, role).any()
        assert_same(run("wudi", deltas, name, role, others="mean", scaling=0.5), 0.5 * deltas.mean(dim=0))


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
    monkeypatch.setattr(linear_algebra, "SAFE", 0.0)
    with pytest.raises(AssertionError):
        assert_same(run("iso_c", deltas), 1.5 * naive_iso_c(deltas), 1e-8)
