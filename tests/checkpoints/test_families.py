"""Families of checkpoints: every tensor's name has one role, and a name that no family knows is listed."""

from __future__ import annotations

from itertools import groupby

import plain_tower
import pytest
import tiny

from merging.base.errors import FamilyError
from merging.models import families

HUGGING_FACE = [
    "vision_model.embeddings.class_embedding", "vision_model.embeddings.position_embedding.weight",
    "vision_model.embeddings.patch_embedding.weight", "vision_model.pre_layrnorm.weight",
    "vision_model.encoder.layers.3.self_attn.k_proj.bias", "vision_model.encoder.layers.11.mlp.fc2.weight",
    "vision_model.post_layernorm.bias", "visual_projection.weight", "vision_model.embeddings.position_ids",
]  # fmt: skip


UNUSED_TEXT = ["positional_embedding", "text_projection", "logit_scale", "token_embedding.weight", "ln_final.weight"]


@pytest.mark.parametrize("names", [list(tiny.shapes()), HUGGING_FACE, [*tiny.shapes(), *UNUSED_TEXT]])
def test_every_name_matches_exactly_one_rule(names):
    family = families.recognize_family(names)
    for name in names:
        assert sum(rule.match(name) is not None for rule in family.rules) == 1, name


def test_unprefixed_names_of_both_schemes_are_known():
    assert families.recognize_family([n.removeprefix("visual.") for n in tiny.shapes()]).key == "open_clip_tower"
    assert families.recognize_family([n.removeprefix("vision_model.") for n in HUGGING_FACE]).key == "hugging_face"


def test_unused_text_tensors_are_buffers():
    described = {p.name: p for p in families.classify_parameters([*tiny.shapes(), *UNUSED_TEXT])}
    assert {described[name].role for name in UNUSED_TEXT} == {families.Role.BUFFER}


def test_odd_names_are_listed_with_the_nearest_family():
    with pytest.raises(FamilyError, match=r"open_clip.*do not know 2 of its \d+ tensors: classifier.weight, extra"):
        families.classify_parameters([*tiny.shapes(), "classifier.weight", "extra"])


@pytest.mark.parametrize("rename", [dict, plain_tower.hugging_face])
def test_tensors_are_listed_in_forward_order_with_their_roles(rename):
    """Whatever the order of the names: all of a block before the next one, and the output at the end."""
    names = list(rename(tiny.pretrained()))
    described = families.classify_parameters(sorted(names, reverse=True))
    assert [p.order for p in described] == list(range(len(names)))
    assert [section for section, _ in groupby(p.section for p in described if p.part != "proj")] == [
        "embeddings", "block 0", "block 1", "output",
    ]  # fmt: skip
    parts = [p.part.rpartition(".")[2] for p in described if p.block == 1 and p.role == families.Role.LINEAR]
    attention = ["in_proj"] if rename is dict else ["q_proj", "k_proj", "v_proj"]
    assert parts == [*attention, "out_proj", "c_fc", "c_proj"]
    (projection,) = [p for p in described if p.part == "proj"]
    assert projection.role == families.Role.PROJECTION and projection.section == "output"
    assert {p.role for p in described if p.part == "ln_1"} == {families.Role.NORM_SCALE, families.Role.SHIFT}
