"""NuSLERP: a point on the arc between two experts, for whole tensors, rows or columns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, choice
from merging.methods.shared import fields, spheres
from merging.methods.slot import Slot

MIN_SINE = 1e-8  # of an angle whose arc counts as straight


@dataclass(frozen=True, kw_only=True)
class NuslerpParams(Params):
    """The parameters of NuSLERP."""

    t: float = spheres.position()
    vectors: str = choice(
        "tensor",
        "rows",
        "columns",
        label="Vectors",
        help="What has an arc of its own: each tensor, each row (the weights of one output), or each column.",
    )
    between: str = spheres.between()
    split_qkv: bool = fields.split_qkv()


def nuslerp(slot: Slot, params: NuslerpParams, statistics: None) -> Tensor:
    """The task vector at position ``t`` of the arcs between two experts' tensors, (2, *S) -> (*S)."""

    def merge(tensors: Tensor) -> Tensor:
        if params.vectors == "tensor" or tensors.dim() < 3:
            return _interpolate(tensors.flatten(1), params.t).reshape(tensors.shape[1:])
        if params.vectors == "rows":
            return _interpolate(tensors, params.t)
        return _interpolate(tensors.transpose(1, -1), params.t).transpose(0, -1)

    return spheres.merge_on_spheres(slot, params.between, merge)


def _interpolate(pair: Tensor, t: float) -> Tensor:
    """The vectors (*R, n) between those of a pair (2, *R, n)."""
    return spheres.interpolate(pair[0], pair[1], t, lambda angle: angle.sin() < MIN_SINE)


register(
    Merge(
        key="nuslerp",
        title="NuSLERP",
        summary="SLERP with a choice of what is one vector: a tensor, a row or a column. It can go between task "
        "vectors. For two experts.",
        formula=r"v = \frac{\sin((1 - t)\, \Omega)}{\sin \Omega}\, v_1 + \frac{\sin(t\, \Omega)}{\sin \Omega}\, v_2, "
        r"\quad \cos \Omega = \cos(v_1, v_2)",
        cite=Citation(
            key="goddard2024mergekit",
            authors="Goddard et al.",
            title="Arcee's MergeKit: a toolkit for merging large language models",
            venue="EMNLP Industry Track",
            year=2024,
            arxiv="2403.13257",
        ),
        params=NuslerpParams,
        run=nuslerp,
        max_experts=2,
        variant="t stands for mergekit's two weights, and between = task_vectors for its base model. Rows lie along "
        "the last dimension, columns along the first: with nuslerp_flatten off, mergekit takes rows by default, and "
        "columns with nuslerp_row_wise on, whatever its documentation says. A tensor of one dimension is one "
        "vector. An arc is a line only where sin Ω is below 1e-8; SLERP's limit is wider. A zero vector counts as "
        "orthogonal to the other.",
    )
)
