"""The paths of the pages."""

from __future__ import annotations

HOME = "screens/home.py"
MERGE = "screens/merge.py"
MASKS = "screens/masks.py"
CONFLICTS = "screens/conflicts.py"
DRIFT = "screens/drift.py"
FEATURES = "screens/features.py"
IMAGE = "screens/image.py"
LEARNING = "screens/learning.py"
RUN = "screens/run.py"
SCORES = "screens/scores.py"
SWEEPS = "screens/sweeps.py"
COMPARE = "screens/compare.py"
LESSONS = "screens/lessons.py"
METHODS = "screens/methods.py"
MODELS = "screens/models.py"
