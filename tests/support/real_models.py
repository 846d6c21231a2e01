"""Small models as other libraries make and save them."""

from __future__ import annotations

import warnings

import torch

from merging.models.checkpoint import MappingCheckpoint

SIZES = {"width": 24, "layers": 2, "head_width": 8, "patch_size": 4, "image_size": 16}
EMBED = 12


def visual(model):
    return {name: value for name, value in model.state_dict().items() if name.startswith("visual.")}


def save(thing, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(thing, path, **options)


def add_prefix(state, prefix):
    return {prefix + name: value for name, value in state.items()}


def open_state(state, name="x"):
    return MappingCheckpoint(state, name)
