"""The tensors of a model, with the names that its file gives them: mergekit's filters choose by these."""

from __future__ import annotations

from pathlib import Path

from merging.recipes.mergekit.settings import NetworkTensor


def read_network_tensors(reference: str, base: Path | None = None, family: str = "") -> list[NetworkTensor]:
    """The tensors of the model with a reference; no numbers are read. Paths are relative to ``base``.

    Raises:
        CheckpointError: the reference names no checkpoint.
    """
    from merging.models.formats.model_sources import ModelRef, open_checkpoint, open_stored
    from merging.models.tower_names import VISUAL, group_tower_names

    model = ModelRef(reference, base)
    checkpoint, stored = open_checkpoint(model, family=family), open_stored(model)
    names = {**{name: (name,) for name in stored.infos}, **group_tower_names(stored.infos)}
    return [
        NetworkTensor(p, names.get(p.name) or names.get(p.name.removeprefix(VISUAL)) or (p.name,))
        for p in checkpoint.parameters
    ]
