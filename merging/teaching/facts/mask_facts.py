"""Facts about masks: the share that pruning by saliency keeps, in a stored run and in the view on screen.

A mask says whether pruning keeps a tensor of an expert's task vector; shared masks keep, for all experts, the tensors
that any expert keeps. A painted factor is one by which the user scales a tensor of an expert's task vector on the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import LessonError, StoreError
from merging.teaching.fact import PERCENT, Cell, Fact

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.runs.run import Run
    from merging.teaching.lesson_context import LessonContext

TENSORS, SCALARS, CELLS = UNITS = ("tensors", "scalars", "cells")


def kept_share(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The share of tensors or scalars that a run keeps for at least one expert, or the cells (expert, tensor) it keeps.

    ``ratio`` and ``shared`` replace the run's prune ratio and its choice of shared masks. With ``expert``, the fact is
    the share that is kept for this expert. The masks of a run that did not prune come from another run's saliency.
    """
    from merging.recipes.presets import read_settings

    run = context.require_run(str(arguments.get("run", "")))
    settings = read_settings(run.recipe)
    ratio, shared = arguments.get("ratio", settings.prune_ratio), arguments.get("shared", settings.shared)
    return _compute_share(find_masks(context, run, float(ratio), bool(shared)), arguments, run)


def kept_share_in_view(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The share kept with the run, the prune ratio and the masks that are on screen on the page Masks."""
    from merging.recipes.presets import read_settings

    address = context.address
    if not address.get("run"):
        raise StoreError("The view shows no run. Choose one.")
    run = context.store.get_run(context.store.resolve_id(address["run"]))
    settings = read_settings(run.recipe)
    try:
        ratio = float(address.get("ratio", settings.prune_ratio))
    except ValueError:
        raise StoreError("The prune ratio of the view is not a number.") from None
    shared = address.get("shared_mask", str(settings.shared)).casefold() == "true"
    return _compute_share(find_masks(context, run, ratio, shared), arguments, run)


def painted_share_in_view(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The share of tensors or scalars whose painted factor is not zero; if ``of`` is "count", the number of tensors.

    If the context has no factors, they come from the rules in the address.
    """
    factors = _resolve_painted_factors(context) if context.factors is None else context.factors
    if not len(factors):
        raise StoreError("Nothing is painted in the view. Turn painting on.")
    tensors = factors.groupby("tensor", sort=False).agg(numel=("numel", "first"), factor=("factor", _has_nonzero))
    tensors = tensors.rename(columns={"factor": "final"})
    if arguments["of"] == "count":
        return Fact(float(tensors["final"].sum()), "tensors", n=len(tensors), counted_unit="tensors", digits=0)
    return _count_share(tensors, str(arguments["of"]), "the painted factors")


def _resolve_painted_factors(context: LessonContext) -> pd.DataFrame:
    """The factors (tensor, numel, expert, factor) of the rules in the address. Raises StoreError, ParameterError."""
    import pandas as pd

    from merging.methods.factor_rules import parse_rules, resolve
    from merging.study.runs.run import read_parameters

    address = context.address
    if not address.get("run") or not address.get("painted_factors"):
        raise StoreError("Nothing is painted in the view. Turn painting on.")
    run = context.store.get_run(context.store.resolve_id(address["run"]))
    facts = run.table("tensors")
    resolved = resolve(parse_rules(address["painted_factors"]), 1.0, run.experts, read_parameters(facts))
    numels = facts.set_index("tensor")["numel"]
    rows = [
        (tensor, int(numels[tensor]), expert, float(factor))
        for expert, expert_factors in zip(resolved.experts, resolved.values, strict=True)
        for tensor, factor in zip(resolved.tensors, expert_factors, strict=True)
    ]
    return pd.DataFrame(rows, columns=["tensor", "numel", "expert", "factor"])


def find_masks(context: LessonContext, run: Run, ratio: float, shared: bool) -> pd.DataFrame:
    """The saliency table of a run's task vectors, with the masks of a prune ratio in [0, 1]. Raises StoreError."""
    from merging.methods.shared.saliency import apply_ratio

    if not (math.isfinite(ratio) and 0 <= ratio <= 1):
        raise LessonError(f"A prune ratio is a fraction in [0, 1]; got {ratio:g}.")
    table = context.compute_once(("saliency", run.id), lambda: _find_saliency(context, run))
    return apply_ratio(table, ratio, shared)


def _find_saliency(context: LessonContext, run: Run) -> pd.DataFrame:
    from merging.study.runs.edit_pairs import find_same_saliency
    from merging.study.runs.run import SALIENCY, have_same_models

    if SALIENCY in run.tables:
        return run.table(SALIENCY)
    runs = [other for other in context.runs if SALIENCY in other.tables and have_same_models(run, other)]
    holder = find_same_saliency(run, runs) or next(iter(runs), None)
    if holder is None:
        raise StoreError("The saliency of these task vectors is not stored. Run LwPTV in front of any merge of them.")
    return holder.table(SALIENCY)


def _compute_share(table: pd.DataFrame, arguments: Mapping[str, Any], run: Run) -> Fact:
    if arguments["of"] == CELLS:
        rows = zip(table["expert"].tolist(), table["tensor"].tolist(), table["kept"].tolist(), strict=True)
        cells = tuple(Cell(str(expert), str(tensor), bool(is_kept)) for expert, tensor, is_kept in rows)
        share = sum(cell.holds for cell in cells) / max(len(cells), 1)
        return Fact(share, PERCENT, n=len(cells), counted_unit="cells", source=run.name, cells=cells)
    if expert := arguments.get("expert"):
        table = table[table["expert"] == expert]
        if table.empty:
            raise LessonError(f"The run has no expert {str(expert)!r}.")
        table = table.assign(final=table["kept"])
    tensors = table.groupby("tensor", sort=False).agg(numel=("numel", "first"), final=("final", "any"))
    return _count_share(tensors, str(arguments["of"]), run.name)


def _count_share(tensors: pd.DataFrame, unit: str, source: str) -> Fact:
    """The share of tensors or scalars whose ``final`` is true. All of them are counted, so there is no interval."""
    if unit not in (TENSORS, SCALARS):
        raise LessonError(f"of is one of {', '.join(UNITS)}; got {unit!r}.")
    weights = tensors["numel"] if unit == SCALARS else tensors["numel"] * 0 + 1
    total = int(weights.sum())
    share = float(weights[tensors["final"].astype(bool)].sum()) / max(total, 1)
    return Fact(share, PERCENT, n=total, counted_unit=unit, source=source)


def _has_nonzero(factors: pd.Series[float]) -> bool:
    return bool((factors != 0).any())
