"""Exports: folders for Transformers and open_clip, with a card that describes the model.

Names are loaded on first use, so that listing the targets does not load torch. The function ``export`` is in
``model_export``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merging.sharing.export.destination import why_not_writable
    from merging.sharing.export.model_export import ExportResult, export_file
    from merging.sharing.export.targets import TARGETS

__all__ = ["TARGETS", "ExportResult", "export_file", "why_not_writable"]

MODULE_OF_NAME = {
    "TARGETS": "targets",
    "ExportResult": "model_export",
    "export_file": "model_export",
    "why_not_writable": "destination",
}


def __getattr__(name: str) -> Any:
    if name not in MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{MODULE_OF_NAME[name]}"), name)
