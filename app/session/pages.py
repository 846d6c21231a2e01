"""The paths of the pages."""

from __future__ import annotations

HOME, MERGE, MASKS, CONFLICTS, DRIFT, FEATURES, SCORES, SWEEPS = (
    f"screens/{name}.py" for name in ("home", "merge", "masks", "conflicts", "drift", "features", "scores", "sweeps")
)
COMPARE, METHODS, MODELS, LEARNING, IMAGE, LESSONS, RUN = (
    f"screens/{name}.py" for name in ("compare", "methods", "models", "learning", "image", "lessons", "run")
)
