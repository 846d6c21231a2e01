"""Families of checkpoints: every tensor's name has one role, and a name that no family knows is listed."""

from __future__ import annotations

import pytest
import tiny

from merging.checkpoints import families
from merging.errors import FamilyError

HUGGING_FACE = [
    "vision_model.embeddings.class_embedding", "vision_model.embeddings.position_embedding.weight",
    "vision_model.embeddings.patch_embedding.weight", "vision_model.pre_layrnorm.weight",
    "vision_model.encoder.layers.3.self_attn.k_proj.bias", "vision_model.encoder.layers.11.mlp.fc2.weight",
    "vision_model.post_layernorm.bias", "visual_projection.weight", "vision_model.embeddings.position_ids",
]  # fmt: skip


UNUSED_TEXT = ["positional_embedding", "text_projection", "logit_scale", "token_embedding.weight", "ln_final.weight"]


@pytest.mark.parametrize("names", [list(tiny.shapes()), HUGGING_FACE, [*tiny.shapes(), *UNUSED_TEXT]])
def test_every_name_matches_exactly_one_rule(names):
    family = families.recognize(names)
    for name in names:
        assert sum(rule.match(name) is not None for rule in family.rules) == 1, name


def test_unprefixed_names_of_both_schemes_are_known():
    assert families.recognize([n.removeprefix("visual.") for n in tiny.shapes()]).key == "open_clip_tower"
    assert families.recognize([n.removeprefix("vision_model.") for n in HUGGING_FACE]).key == "hugging_face"


def test_unused_text_tensors_are_buffers():
    described = {p.name: p for p in families.describe([*tiny.shapes(), *UNUSED_TEXT])}
    assert {described[name].role for name in UNUSED_TEXT} == {families.Role.BUFFER}


def test_odd_names_are_listed_with_the_nearest_family():
    with pytest.raises(FamilyError, match=r"open_clip.*do not know 2 of its \d+ tensors: classifier.weight, extra"):
        families.describe([*tiny.shapes(), "classifier.weight", "extra"])
