"""The closed list of facts: the key, the arguments and the function of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from merging.teaching.fact import FRACTION_UNITS, Fact

if TYPE_CHECKING:
    from merging.teaching.lesson import FactSpec


@dataclass(frozen=True)
class FactKind:
    """A kind of fact. ``compute`` is "module:function", imported on first use.

    ``needed`` and ``optional`` are the names of its arguments.

    A fact that ``reads_view`` is computed from the view on screen, so only a goal can name it.
    """

    compute: str
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    reads_view: bool = False


FACT_KINDS = {
    "accuracy": FactKind("score_facts:accuracy", ("run", "over")),
    "difference": FactKind("score_facts:difference", ("run", "against", "over")),
    "h_score": FactKind("score_facts:h_score", ("run",)),
    "kept": FactKind("mask_facts:kept_share", ("run", "of"), ("ratio", "shared", "expert")),
    "kept_now": FactKind("mask_facts:kept_share_in_view", ("of",), reads_view=True),
    "painted_now": FactKind("mask_facts:painted_share_in_view", ("of",), reads_view=True),
    "norm": FactKind("conflict_facts:norm", ("expert",)),
    "agreement": FactKind("conflict_facts:agreement", ("density",), ("space",)),
    "null": FactKind("conflict_facts:random_agreement", ("density",), ("space",)),
    "survived": FactKind("conflict_facts:surviving_share", ("density",), ("expert", "layer")),
    "cosine": FactKind("conflict_facts:cosine", (), ("first", "second")),
    "drift": FactKind("drift_facts:drift", ("run",), ("at", "task", "name")),
    "correlation": FactKind("drift_facts:correlation", ("runs",), ("over",)),
    "put_back": FactKind("drift_facts:restored_accuracy", ("run", "over"), ("part", "name")),
    "ablated": FactKind("drift_facts:ablated_accuracy", ("run", "kind")),
    "retained": FactKind("curve_facts:retained_accuracy", ("method", "experts")),
    "exemplars": FactKind("curve_facts:exemplars", ("method", "n")),
    "swept": FactKind("sweep_facts:swept_score", ("sweep", "at", "over"), ("run",)),
    "best": FactKind("sweep_facts:best_point", ("sweep", "by"), ("subject", "least", "over", "of", "run")),
    "distance": FactKind("feature_facts:distance", ("run",), ("task", "unit")),
    "neighbors": FactKind("feature_facts:neighbors", ("run",), ("task", "against")),
    "separability": FactKind("feature_facts:separability", ("run",), ("task",)),
    "trust": FactKind("feature_facts:map_trustworthiness", ("run", "perplexity"), ("task",)),
    "lens": FactKind("image_facts:lens", ("run", "depth"), ("over", "of")),
    "restored": FactKind("image_facts:restored_share", ("run", "depth"), ("over", "tokens", "donor")),
    "joined": FactKind("partner_facts:change_by_expert", ("run", "task", "expert"), ("among",)),
    "worst_joined": FactKind("partner_facts:worst_changes", ("run",), ("among",)),
    "brings": FactKind("partner_facts:brought_value", ("run", "task", "expert")),
    "best_subset": FactKind("partner_facts:best_subset", ("run", "by", "of")),
    "preview": FactKind("image_facts:preview", ("over",), ("of",), reads_view=True),
}
WITHOUT_INTERVAL = (  # facts over all entries, or facts whose interval is unknown
    "kept", "kept_now", "painted_now", "norm", "agreement", "null", "survived", "cosine", "drift", "correlation",
    "separability", "trust", "preview", "worst_joined",
)  # fmt: skip


def lacks_interval(spec: FactSpec, fact: Fact) -> bool:
    """Whether a fact has no interval although facts of its kind have one, as if answers are not stored."""
    is_exempt = spec.fact in WITHOUT_INTERVAL or spec.arguments.get("of") == "certainty"
    return fact.unit in FRACTION_UNITS and not fact.name and not fact.has_interval and not is_exempt
