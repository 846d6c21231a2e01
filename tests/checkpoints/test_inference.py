"""Networks other than CLIP: roles, blocks, towers and order from names, shapes and types alone."""

from __future__ import annotations

import sys
import time
from itertools import groupby

import other_kinds
import pytest
import tiny
import torch

from merging.base.errors import FamilyError
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import Role
from merging.models.network_inference import describe_parameters, is_inferred
from merging.models.tensor_info import TensorInfo

INFERRED = [kind for kind in other_kinds.KINDS if kind != "ResNet"]  # whose blocks are stages


def infos(shapes: other_kinds.Shapes, dtype: torch.dtype = torch.float32) -> dict[str, TensorInfo]:
    return {name: TensorInfo(shape, dtype) for name, shape in shapes.items()}


def described(kind: str) -> dict[str, tuple[object, ...]]:
    """{tensor: (role, section, whether it is transposed)} of a kind, in forward order."""
    rows = describe_parameters(infos(other_kinds.KINDS[kind]()))
    return {p.name: (p.role, p.section, p.transposed) for p in rows}


@pytest.mark.parametrize("kind", INFERRED)
def test_every_tensor_is_described_once_and_two_blocks_stand_between_the_rest(kind):
    shapes = other_kinds.KINDS[kind]()
    rows = describe_parameters(infos(shapes))
    assert sorted(p.name for p in rows) == sorted(shapes) and [p.order for p in rows] == list(range(len(rows)))
    for tower in {p.tower for p in rows if p.block is not None}:
        places = [p.block for p in rows if p.tower == tower]
        assert [block for block, _ in groupby(places)] in ([None, 0, 1, None], [None, 0, 1], [0, 1, None])


def test_roles_of_what_has_a_name_of_its_own():
    bert, t5, gpt2, dinov2 = (described(kind) for kind in ("BERT", "T5", "GPT-2", "DINOv2"))
    assert bert["bert.embeddings.word_embeddings.weight"] == (Role.VOCABULARY, "embeddings", False)
    assert bert["bert.embeddings.token_type_embeddings.weight"][0] == Role.EMBEDDING
    assert bert["bert.encoder.layer.1.output.LayerNorm.weight"] == (Role.NORM_SCALE, "block 1", False)
    assert bert["classifier.weight"] == (Role.LINEAR, "output", False)
    assert t5["decoder.block.1.layer.1.EncDecAttention.q.weight"] == (Role.LINEAR, "decoder block 1", False)
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    assert t5[bias] == (Role.EMBEDDING, "encoder block 0", False)
    assert next(iter(t5)) == "shared.weight" and list(t5)[-1] == "decoder.final_layer_norm.weight"
    assert gpt2["transformer.h.0.mlp.c_fc.weight"] == gpt2["transformer.h.0.attn.c_proj.weight"]
    assert gpt2["transformer.h.0.attn.c_proj.weight"] == (Role.LINEAR, "block 0", True)
    assert dinov2["encoder.layer.0.layer_scale1.lambda1"][0] == Role.NORM_SCALE
    assert dinov2["embeddings.patch_embeddings.projection.weight"][0] == Role.CONV


def test_a_head_with_a_bias_does_not_turn_square_matrices_back():
    rows = {p.name: p for p in describe_parameters(infos(other_kinds.gpt2() | other_kinds.linear("classifier", 3)))}
    assert rows["transformer.h.1.attn.c_proj.weight"].transposed and not rows["classifier.weight"].transposed


def test_towers_come_in_the_order_in_which_data_go_through_them():
    sections = list(dict.fromkeys(section.partition(" ")[0] for _, section, _ in described("BLIP VQA").values()))
    assert sections == ["vision_model", "text_encoder", "text_decoder"]
    names = list(described("LLaVA"))
    projector = names.index("multi_modal_projector.linear_1.weight")
    assert all(name.startswith("vision_tower") for name in names[:30]) and projector < names.index(
        "language_model.model.embed_tokens.weight"
    )


def test_integers_and_counters_are_buffers_and_experts_of_a_layer_do_not_count_depth():
    shapes = other_kinds.llama() | {"model.layers.0.self_attn.rotary.inv_freq": (8,)}
    for block in range(2):
        for number in range(4):
            for part in ("w1", "w2", "w3"):
                shapes[f"model.layers.{block}.mlp.experts.{number}.{part}.weight"] = (4, 16)
    rows = {p.name: p for p in describe_parameters(infos(shapes) | {"model.ids": TensorInfo((3,), torch.int64)})}
    assert rows["model.ids"].role == rows["model.layers.0.self_attn.rotary.inv_freq"].role == Role.BUFFER
    assert {p.block for p in rows.values()} == {None, 0, 1}
    assert rows["model.layers.1.mlp.experts.3.w2.weight"].block == 1


def test_clip_towers_are_not_inferred_even_if_they_are_damaged():
    assert not is_inferred(tiny.shapes()) and not is_inferred([*tiny.shapes(), "classifier.weight"])
    assert not is_inferred(name for name in tiny.shapes() if "mlp" not in name)
    opened = MappingCheckpoint(tiny.pretrained() | {"extra": torch.ones(1)}, "it")
    with pytest.raises(FamilyError, match="do not know 1 of its"):
        _ = opened.parameters


def test_quantized_weights_are_refused():
    with pytest.raises(FamilyError, match="is quantized"):
        describe_parameters(infos(other_kinds.llama() | {"lm_head.qweight": (16, 2)}), "it")


def test_order_inside_a_block_is_that_of_the_facts():
    names = [name.partition(".0.")[2] for name in described("BERT") if ".layer.0." in name and name.endswith(".weight")]
    assert names == [
        "attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight",
        "attention.output.dense.weight", "attention.output.LayerNorm.weight", "intermediate.dense.weight",
        "output.dense.weight", "output.LayerNorm.weight",
    ]  # fmt: skip
    statistics = [name for name, (role, *_) in described("ResNet").items() if role == Role.STATISTIC]
    assert len(statistics) == 18 and all("running" in name for name in statistics)


@pytest.mark.parametrize(
    "name", [lambda i: f"a.{i}." + "0." * 40 + "w", lambda i: f"{i}" * 500, lambda i: "a1" * 200 + f".{i}.pos_emb_"]
)
def test_odd_names_cost_no_more_than_their_length(name):
    shapes = {name(i): (2,) for i in range(3000)}
    started = time.process_time()
    if is_inferred(shapes):
        describe_parameters(infos(shapes))
    assert time.process_time() - started < 5


def _calls(shapes):
    """How many functions run while parameters are inferred."""
    counted = 0

    def count(frame, event, argument):
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        is_inferred(shapes)
        describe_parameters(infos(shapes), family="inferred")
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize(
    "name",
    [lambda i: f"a.{i}." + "0." * 40 + "w", lambda i: f"t{i}.layers.{i % 7}.p{i % 3}.w", lambda i: f"{i}.weight"],
)
def test_work_grows_with_the_number_of_names_and_no_faster(name):
    few, many = (_calls({name(i): (2,) for i in range(count)}) for count in (300, 1200))
    assert many < 4.5 * few
