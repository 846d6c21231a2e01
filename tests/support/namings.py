"""State dicts under the names of another library."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from merging.models.checkpoint import MappingCheckpoint
from merging.models.checkpoint_views import convert_naming


def to_naming(state: Mapping[str, Tensor], naming: str) -> dict[str, Tensor]:
    """``in_naming`` for a state dict in memory."""
    view = convert_naming(MappingCheckpoint(state, "The state dict"), naming)
    return {name: view.read(name).contiguous() for name in view.infos}
