"""The way out: models as folders for Transformers and open_clip, with everything that says what they are."""

from merging.export.destination import refusal
from merging.export.export import Exported, export, export_file
from merging.export.targets import TARGETS

__all__ = ["TARGETS", "Exported", "export", "export_file", "refusal"]
