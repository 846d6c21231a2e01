"""The closed list of facts: what each is called, what it is asked with, and where it is computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FactKind:
    """One fact. ``compute`` is "module:function", imported on first use; ``needed`` and ``optional`` are arguments.

    ``now`` says that it is read from the view on screen, so it can be a goal and nothing else.
    """

    compute: str
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    now: bool = False


FACTS = {
    "accuracy": FactKind("scores:accuracy", ("run", "over")),
    "difference": FactKind("scores:difference", ("run", "against", "over")),
    "h_score": FactKind("scores:h_score", ("run",)),
    "kept": FactKind("masks:kept", ("of",), ("run", "ratio", "shared", "expert")),
    "kept_now": FactKind("masks:kept_now", ("of",), now=True),
    "painted_now": FactKind("masks:painted_now", ("of",), now=True),
    "norm": FactKind("masks:norm", ("expert",), ("kind",)),
    "agreement": FactKind("conflicts:agreement", ("density",), ("space", "kind")),
    "null": FactKind("conflicts:null", ("density",), ("space", "kind")),
    "cosine": FactKind("conflicts:cosine", (), ("first", "second")),
    "drift": FactKind("drift:drift", ("run",), ("at", "task", "name")),
    "correlation": FactKind("drift:correlation", ("runs",), ("over", "points")),
    "put_back": FactKind("drift:put_back", ("run", "over"), ("part", "name")),
    "retained": FactKind("curves:retained", ("method", "experts")),
    "exemplars": FactKind("curves:exemplars", ("method", "n")),
    "swept": FactKind("sweeps:swept", ("sweep", "at", "over")),
    "best": FactKind("sweeps:best", ("sweep", "by"), ("subject", "least", "over")),
    "distance": FactKind("features:distance", ("run",), ("task", "unit")),
    "neighbors": FactKind("features:neighbors", ("run",), ("task", "against")),
    "separability": FactKind("features:separability", ("run",), ("task",)),
    "lens": FactKind("images:lens", ("run", "depth"), ("over",)),
    "restored": FactKind("images:restored", ("run", "depth"), ("over", "tokens")),
    "preview": FactKind("previews:preview", ("over",), now=True),
}
