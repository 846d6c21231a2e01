"""A model for others: folders for Transformers and open_clip, with a card that says what the model is.

Importing this package is cheap; torch is loaded by the first name that needs it. The function ``export`` is in the
module of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merging.export.destination import refusal
    from merging.export.export import Exported, export_file
    from merging.export.targets import TARGETS

__all__ = ["TARGETS", "Exported", "export_file", "refusal"]


def __getattr__(name: str) -> Any:
    if name == "refusal":
        from merging.export import destination

        return destination.refusal
    if name in {"Exported", "export_file"}:
        from merging.export import export

        return getattr(export, name)
    if name == "TARGETS":
        from merging.export import targets

        return targets.TARGETS
    raise AttributeError(f"module 'merging.export' has no attribute {name!r}")
