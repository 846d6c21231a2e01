"""The merges that factorize matrices, written plainly with full decompositions, and matrices to try them on."""

from __future__ import annotations

import torch

from merging.methods import registry
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role

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
    method = registry.find_merge(key)
    experts = tuple(str(k) for k in range(len(vectors)))
    parameter = Parameter(name, role, "", "", None, 0)
    slot = Slot(parameter, experts, torch.zeros_like(vectors[0]), vectors, report_share=tick)
    return method.run(slot, method.params.build(params), None)


def assert_same(found, expected, tolerance=1e-9):
    assert found.shape == expected.shape
    assert float((found - expected).norm()) <= tolerance * max(float(expected.norm()), 1e-30)


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
