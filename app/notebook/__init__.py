"""What a notebook has beyond the library: stored runs, the charts of every page, and merges that draw themselves."""

from __future__ import annotations

import importlib
from typing import Any

# Public names that load on first use -> the modules that define them.
DEFINED_IN = {
    "compare": "app.notebook.comparison",
    "merge": "app.notebook.merge_call",
    "run": "app.notebook.run_list",
    "runs": "app.notebook.run_list",
    "view": "app.notebook.page_view",
}
__all__ = list(DEFINED_IN)


def __getattr__(name: str) -> Any:
    if name not in DEFINED_IN:
        raise AttributeError(f"module 'app.notebook' has no attribute {name!r}")
    return getattr(importlib.import_module(DEFINED_IN[name]), name)
