"""Facts about conflicts between experts: sign agreement, elections, cosines, and lengths of task vectors.

An entry of an expert's task vector votes with its sign; at a density d, only the expert's largest share d of entries is
kept and votes. The elected sign of a position is that of the sum of its entries (TIES). The facts count all entries, so
they have no intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import LessonError
from merging.base.text import did_you_mean
from merging.teaching.fact import PERCENT, Fact

if TYPE_CHECKING:
    from merging.study.measurements.pairs import PairSums
    from merging.study.measurements.signs import SignAgreement
    from merging.teaching.lesson_context import LessonContext

SIGNS, PAIRS = "signs", "pairs"


def agreement(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """Mean sign agreement over positions with a vote, at a density, in a space: "weights" or one of DRM's."""
    mean = _find_agreement(context, arguments)
    return Fact(mean.mean, PERCENT, n=mean.positions, counted_unit="positions", source="sign agreement")


def random_agreement(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """Mean sign agreement of random signs with the same numbers of votes."""
    mean = _find_agreement(context, arguments)
    return Fact(mean.null, PERCENT, n=mean.positions, counted_unit="positions", source="random signs, same votes")


def _find_agreement(context: LessonContext, arguments: Mapping[str, Any]) -> SignAgreement:
    from merging.study.measurements.signs import WEIGHTS, mean_agreement, read_counts

    measured = context.find_measurement(SIGNS)
    counts = context.compute_once(
        "sign counts", lambda: read_counts(measured.table("votes"), int(measured.notes["tasks"]))
    )
    space, density = str(arguments.get("space", WEIGHTS)), _check_density(arguments)
    if (space, density) not in counts:
        known = sorted({name for name, _ in counts})
        raise LessonError(f"space is one of {', '.join(known)}; got {space!r}.{did_you_mean(space, known)}")
    return mean_agreement(counts[space, density])


def surviving_share(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The share of kept entries that have the elected sign, of all experts or of one, in all layers or in one."""
    from merging.study.measurements.signs import DENSITIES

    measured, density = context.find_measurement(SIGNS), _check_density(arguments)
    assert density in DENSITIES  # checked by _check_density
    rows = measured.table("elections")
    rows = rows[rows["density"] == density]
    if expert := arguments.get("expert"):
        rows = rows[rows["expert"] == _check_name(str(expert), set(rows["expert"]), "expert")]
    if layer := arguments.get("layer"):
        layers = measured.table("layers")
        name = _check_name(str(layer), set(layers["tensor"]), "layer")
        rows = rows[rows["order"].isin(layers[layers["tensor"] == name]["order"].tolist())]
    kept, won = int(rows["kept"].sum()), int(rows["won"].sum())
    share = won / kept if kept else math.nan
    return Fact(share, PERCENT, n=kept, counted_unit="kept entries", source="sign election by the sum")


def cosine(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The cosine of two experts' task vectors over all tensors, or the mean over all pairs of experts."""
    import numpy as np

    pairs = _read_pairs(context)
    values = pairs.sum_rows().values("cosine")[0]
    if "first" in arguments or "second" in arguments:
        first, second = (_find_expert_index(pairs, arguments.get(side)) for side in ("first", "second"))
        value, n = float(values[first, second]), 1
    else:
        upper = values[np.triu_indices(len(pairs.experts), 1)]
        value, n = float(np.nanmean(upper)), len(upper)
    return Fact(value, "", n=n, counted_unit="pairs" if n > 1 else "pair", source="cosines of task vectors", digits=3)


def norm(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The length of an expert's task vector over all tensors."""
    pairs = _read_pairs(context)
    i = _find_expert_index(pairs, arguments["expert"])
    squares = float(pairs.dot[:, i, i].sum())
    tensors = len(pairs.tensors)
    return Fact(math.sqrt(squares), "", n=tensors, counted_unit="tensors", source="lengths of task vectors", digits=2)


def _read_pairs(context: LessonContext) -> PairSums:
    from merging.study.measurements.pairs import read_tables

    measured = context.find_measurement(PAIRS)
    return context.compute_once(PAIRS, lambda: read_tables({name: measured.table(name) for name in measured.tables}))


def _find_expert_index(pairs: PairSums, name: Any) -> int:
    return pairs.experts.index(_check_name(str(name), set(pairs.experts), "expert"))


def _check_name(name: str, known: set[str], kind: str) -> str:
    if name not in known:
        raise LessonError(f"There is no {kind} {name!r}.{did_you_mean(name, known)}")
    return name


def _check_density(arguments: Mapping[str, Any]) -> float:
    from merging.study.measurements.signs import DENSITIES

    density = arguments["density"]
    if density not in DENSITIES:
        raise LessonError(f"density is one of {', '.join(map(str, DENSITIES))}; got {density!r}.")
    return float(density)
