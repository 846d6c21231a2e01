"""What ``import mergescope`` gives where the package is not installed: the library and ``app.notebook``."""

from __future__ import annotations

import importlib
from typing import Any

from app.notebook import DEFINED_IN


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module(DEFINED_IN.get(name, "merging")), name)
