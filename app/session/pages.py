"""The paths of the pages."""

from __future__ import annotations

HOME, MERGE, MASKS, CONFLICTS, DRIFT, FEATURES, SCORES, SWEEPS, COMPARE, METHODS, MODELS, LEARNING, IMAGE, LESSONS, RUN = (
    f"screens/{name}.py"
    for name in (
        "home", "merge", "masks", "conflicts", "drift", "features", "scores", "sweeps", "compare", "methods", "models",
        "learning", "image", "lessons", "run",
    )
)  # fmt: skip
