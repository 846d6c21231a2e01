"""Karcher mean: per tensor, the direction nearest to those of all experts on the sphere, at their mean length."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.flops import LinearMap, product, task_products
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, integer, real
from merging.methods.shared import fields, spheres
from merging.methods.slot import Slot
from merging.models.families import WEIGHT_ROLES


@dataclass(frozen=True, kw_only=True)
class KarcherParams(Params):
    """The parameters of the Karcher mean."""

    steps: int = integer(
        10, low=0, high=1000, slider=(0, 50), label="Steps", help="Most steps towards the mean; 0 stays at the start."
    )
    tolerance: float = real(
        1e-5, low=0.0, high=0.1, slider=(0.0, 0.001), step=0.00001, label="Tolerance",
        help="A step whose angle, in radians, is below this is the last; shorter tensors count as zero.",
    )  # fmt: skip
    between: str = spheres.between()
    split_qkv: bool = fields.split_qkv()


def karcher(slot: Slot, params: KarcherParams, statistics: None) -> Tensor:
    """The Karcher mean of the experts' tensors, (K, *S) -> (*S)."""

    def merge(tensors: Tensor) -> Tensor:
        flat = tensors.flatten(1)
        weights = find_mean_weights((flat @ flat.T).cpu(), params.steps, params.tolerance)
        return (weights.to(flat) @ flat).reshape(tensors.shape[1:])

    return spheres.merge_on_spheres(slot, params.between, merge)


def find_mean_weights(gram: Tensor, steps: int, tolerance: float) -> Tensor:
    """The weights (K,) by which vectors with this Gram matrix (K, K) add up to their Karcher mean.

    The mean and all steps lie in the span of the vectors, so their coordinates in it suffice. Vectors that are not
    longer than ``tolerance`` have no direction, but count in the mean length. If the directions cancel, no mean is
    defined, and the weights are those of the arithmetic mean.
    """
    lengths = gram.diagonal().sqrt()
    valid = lengths > tolerance
    if not bool(valid.any()):
        return torch.zeros_like(lengths)
    shares = valid / lengths.clamp(min=spheres.SHORTEST)  # a unit vector is its vector times this
    cosines = gram * torch.outer(shares, shares)
    mean = valid.to(gram) / valid.sum()  # coordinates on the unit vectors
    length = math.sqrt(max(float(mean @ cosines @ mean), 0.0))
    if length <= tolerance:
        return torch.full_like(lengths, 1 / len(lengths))
    mean = mean / length
    for _ in range(steps):
        tangent = _mean_tangent(mean, cosines, valid, tolerance)
        angle = math.sqrt(max(float(tangent @ cosines @ tangent), 0.0))
        if angle <= tolerance:
            break
        mean = math.cos(angle) * mean + math.sin(angle) / angle * tangent
        mean = mean / (mean @ cosines @ mean).sqrt()
    weights: Tensor = lengths.mean() * mean * shares
    return weights


def _mean_tangent(mean: Tensor, cosines: Tensor, valid: Tensor, tolerance: float) -> Tensor:
    """The mean (K,) of the steps on the sphere from ``mean`` to every unit vector, in coordinates on these."""
    at = (cosines @ mean).clamp(-1.0, 1.0)
    angles = at.arccos()
    stretch = torch.where(valid & (angles > tolerance), angles / angles.sin().clamp(min=spheres.SHORTEST), 0.0)
    stretch = stretch / valid.sum()
    return stretch - (stretch @ at) * mean


def _algebra(params: KarcherParams, matrix: LinearMap) -> float:
    return task_products(matrix) + product(1, matrix.tasks, matrix.numel)


register(
    Merge(
        key="karcher",
        title="Karcher mean",
        summary="Takes, per tensor, the direction whose squared angles to those of all experts are least, at the "
        "experts' mean length: SLERP for any number of experts.",
        formula=r"\theta = \ell\, u, \quad \ell = \frac{1}{K} \sum_k \lVert \theta_k \rVert, \quad "
        r"u = \mathrm{argmin}_{\lVert u \rVert = 1} \sum_k \mathrm{angle}(u, \theta_k)^2",
        cite=Citation(
            key="karcher1977riemannian",
            authors="Karcher",
            title="Riemannian center of mass and mollifier smoothing",
            venue="Communications on Pure and Applied Mathematics",
            year=1977,
        ),
        params=KarcherParams,
        run=karcher,
        algebra=_algebra,
        algebra_on=WEIGHT_ROLES,
        variant="The iteration, its start at the mean direction, ten steps and tolerance 1e-5 are mergekit's, and so "
        "is the length: the mean over all experts, zero tensors included, which have no say in the direction. "
        "mergekit has only the mean of weights. Where the directions cancel, this takes the arithmetic mean, mergekit "
        "the first expert.",
    )
)
