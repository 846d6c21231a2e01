"""What ``import mergescope`` gives where the package is not installed: the library, and what notebooks have beyond it."""

from __future__ import annotations

from typing import Any

import merging
from app import notebook


def __getattr__(name: str) -> Any:
    return getattr(notebook if name in notebook.DEFINED_IN else merging, name)
