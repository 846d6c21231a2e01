"""mergekit's merge methods that a recipe can express, with their parameters, as of mergekit 0.1.5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

REQUIRED = object()  # the default of a parameter that mergekit asks for
# Steps by which a method makes task vectors sparse, before it adds them up.
RANDOM, LARGEST, MIDDLING, BY_RANK = "random", "largest", "middling", "by rank"
SUMS = MappingProxyType({"normalize": False, "rescale": False, "lambda": 1.0, "int8_mask": False})
WEIGHTS = MappingProxyType({"weight": REQUIRED, "density": 1.0})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeMethod:
    """A method of mergekit.

    ``shared`` has its parameters with one value for all models, ``by_model`` those that every model has, each with its
    default. Without ``needs_base``, a base model is optional. ``sparsity`` and ``elects`` describe methods that add
    task vectors up. Parameters in ``idle`` have no effect.
    """

    shared: Mapping[str, Any]
    by_model: Mapping[str, Any] = field(default_factory=dict)
    needs_base: bool = True
    sparsity: str = ""
    elects: bool = False
    sums: bool = False
    idle: tuple[str, ...] = ("int8_mask",)

    def default(self, name: str) -> Any:
        """The default of a parameter."""
        return self.shared[name] if name in self.shared else self.by_model[name]


def _make_sum(sparsity: str, elects: bool, normalize: bool = False, **by_model: float) -> MergeMethod:
    """A method that adds task vectors up; the random ones rescale by default."""
    shared = {**SUMS, "normalize": normalize, "rescale": sparsity in (RANDOM, BY_RANK)}
    idle = ("int8_mask",) if sparsity else ("int8_mask", "density", "rescale")
    return MergeMethod(
        shared=shared, by_model={**WEIGHTS, **by_model}, sparsity=sparsity, elects=elects, sums=True, idle=idle
    )


MERGE_METHODS: Mapping[str, MergeMethod] = MappingProxyType(
    {
        "linear": MergeMethod(shared={"normalize": True}, by_model={"weight": REQUIRED}, needs_base=False),
        "task_arithmetic": _make_sum("", elects=False),
        "ties": _make_sum(LARGEST, elects=True, normalize=True),
        "dare_linear": _make_sum(RANDOM, elects=False),
        "dare_ties": _make_sum(RANDOM, elects=True),
        "slerp": MergeMethod(shared={"t": REQUIRED}),
        "nuslerp": MergeMethod(
            shared={"nuslerp_flatten": True, "nuslerp_row_wise": False},
            by_model={"weight": REQUIRED},
            needs_base=False,
        ),
        "karcher": MergeMethod(shared={"max_iter": 10, "tol": 1e-5}, needs_base=False),
        "della": _make_sum(BY_RANK, elects=True, normalize=True, epsilon=0.15),
        "della_linear": _make_sum(BY_RANK, elects=False, epsilon=0.15),
        "breadcrumbs": _make_sum(MIDDLING, elects=False, gamma=0.01),
        "breadcrumbs_ties": _make_sum(MIDDLING, elects=True, gamma=0.01),
        "model_stock": MergeMethod(shared={"filter_wise": False}),
        "sce": MergeMethod(shared={"select_topk": 1.0, "int8_mask": False}),
    }
)
FLAGS = frozenset({"normalize", "rescale", "int8_mask", "nuslerp_flatten", "nuslerp_row_wise", "filter_wise"})
EQUAL_BELOW = 1e-6  # the sum of mean squares below which SCE of mergekit weighs all models alike
LEAST_NORM = 1e-6  # the least product of norms of mergekit's Model Stock
