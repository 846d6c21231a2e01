"""Contexts for the computations of tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from merging.tasks.context import Context


def context_of(options: dict[str, Any], device: str = "cpu") -> Context:
    """The context that ``options`` name parts of, such as ``cancel``; those are taken out of them."""
    parts = {field.name: options.pop(field.name) for field in fields(Context) if field.name in options}
    return Context(**{"device": device} | parts)
