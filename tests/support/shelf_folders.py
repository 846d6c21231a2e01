"""Folders of models as people have them, and what the catalog sees in them."""

from __future__ import annotations

import json
from pathlib import Path

import tiny
from namings import to_naming
from safetensors.torch import save_file

from merging.sharing.catalog import model_listing
from merging.sharing.catalog.model_groups import ModelGroup
from merging.sharing.catalog.model_listing import CatalogEntry, Listing
from merging.sharing.catalog.model_recognition import ModelFacts, recognize_model

CONFIG = {
    "model_type": "clip_vision_model", "hidden_act": "quick_gelu", "hidden_size": tiny.WIDTH, "num_attention_heads": 2,
    "num_hidden_layers": tiny.LAYERS, "image_size": tiny.SIZE, "patch_size": tiny.PATCH, "projection_dim": tiny.EMBED,
}  # fmt: skip


def list_folder(folder: Path) -> Listing:
    return model_listing.list_models_folder(folder.name, folder)


def recognize_folder(folder: Path) -> list[tuple[CatalogEntry, ModelFacts]]:
    return [(item, recognize_model(item)) for item in list_folder(folder).items]


def only_group(found: list[ModelGroup]) -> ModelGroup:
    assert len(found) == 1, found
    return found[0]


def names(group: ModelGroup) -> dict[str, str]:
    """What a group's experts are called, and where they are."""
    return {name: item.listed_path for name, item in group.experts.items()}


def transformers(folder: Path, state: tiny.StateDict) -> Path:
    folder.mkdir(parents=True)
    converted = {name: value.contiguous() for name, value in to_naming(state, "hf").items()}
    save_file(converted, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder
