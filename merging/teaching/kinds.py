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
    "kept": FactKind("masks:kept", ("run", "of"), ("ratio", "shared", "expert")),
    "kept_now": FactKind("masks:kept_now", ("of",), now=True),
    "painted_now": FactKind("masks:painted_now", ("of",), now=True),
    "norm": FactKind("conflicts:norm", ("expert",)),
    "agreement": FactKind("conflicts:agreement", ("density",), ("space",)),
    "null": FactKind("conflicts:null", ("density",), ("space",)),
    "survived": FactKind("conflicts:survived", ("density",), ("expert", "layer")),
    "cosine": FactKind("conflicts:cosine", (), ("first", "second")),
    "drift": FactKind("drift:drift", ("run",), ("at", "task", "name")),
    "correlation": FactKind("drift:correlation", ("runs",), ("over",)),
    "put_back": FactKind("drift:put_back", ("run", "over"), ("part", "name")),
    "retained": FactKind("curves:retained", ("method", "experts")),
    "exemplars": FactKind("curves:exemplars", ("method", "n")),
    "swept": FactKind("sweeps:swept", ("sweep", "at", "over"), ("run",)),
    "best": FactKind("sweeps:best", ("sweep", "by"), ("subject", "least", "over", "of", "run")),
    "distance": FactKind("features:distance", ("run",), ("task", "unit")),
    "neighbors": FactKind("features:neighbors", ("run",), ("task", "against")),
    "separability": FactKind("features:separability", ("run",), ("task",)),
    "trust": FactKind("features:trust", ("run", "perplexity"), ("task",)),
    "lens": FactKind("images:lens", ("run", "depth"), ("over", "of")),
    "restored": FactKind("images:restored", ("run", "depth"), ("over", "tokens", "donor")),
    "preview": FactKind("images:preview", ("over",), ("of",), now=True),
}
WITHOUT_INTERVAL = (  # all of something is counted, or no interval is known
    "kept", "kept_now", "painted_now", "norm", "agreement", "null", "survived", "cosine", "drift", "correlation",
    "separability", "trust", "preview",
)  # fmt: skip
