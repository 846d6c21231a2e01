"""The names of the libraries that a model can be exported for."""

from __future__ import annotations

TARGETS = ("hf", "open_clip")
