"""Facts of networks: which kind a file is, and what its names cannot say."""

from __future__ import annotations

import other_kinds
import pytest
import tiny

from merging.models import network_facts
from merging.models.network_facts import all_facts, facts_of

TITLES = {
    "BLIP vision": "BLIP", "BLIP VQA": "BLIP", "BERT": "BERT or RoBERTa", "T5": "T5",
    "Llama": "Llama or a relative of it", "GPT-2": "GPT-2", "DINOv2": "DINOv2", "SigLIP": "SigLIP", "LLaVA": "LLaVA",
    "ResNet": "ResNet of torchvision or timm",
}  # fmt: skip


@pytest.mark.parametrize("kind", other_kinds.KINDS)
def test_a_kind_is_known_by_its_names_whatever_stands_before_them(kind):
    names = other_kinds.KINDS[kind]()
    for prefix in ("", "module."):
        found = facts_of(prefix + name for name in names)
        assert found is not None and found.title == TITLES[kind]
    assert facts_of(tiny.shapes()) is None


def test_an_unknown_key_is_an_error(tmp_path, monkeypatch):
    assert len({table.key for table in all_facts()}) == len(all_facts())
    file = tmp_path / "facts.toml"
    file.write_text('[odd]\ntitle = "Odd"\nmarks = [["a"]]\nhats = ["b"]\n', encoding="utf-8")
    monkeypatch.setattr(network_facts, "FACTS_FILE", file)
    with pytest.raises(ValueError, match=r"\[odd\] has unknown keys: hats"):
        all_facts.__wrapped__()


def test_what_the_facts_of_a_name_say():
    t5, vit, bert = facts_of(other_kinds.t5()), _table("vit"), _table("bert")
    group = ("model.shared.weight", "model.decoder.embed_tokens.weight")
    assert t5.tied_groups(["model.decoder.embed_tokens.weight", "x.weight", "model.shared.weight"]) == (group,)
    assert t5.tied_groups(["shared.weight"]) == ()
    assert t5.is_head("classification_head.dense.weight") and not t5.is_head("decoder.classifier.weight")
    assert t5.is_unused("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight")
    assert not t5.is_unused("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
    assert vit.later_name("vit.encoder.layer.11.output.dense.bias") == "vit.layers.11.mlp.fc2.bias"
    assert vit.later_name("vit.encoder.layer.1.attention.output.dense.bias") == "vit.layers.1.attention.o_proj.bias"
    assert bert.later_name("embeddings.LayerNorm.gamma") == "embeddings.LayerNorm.weight"
    assert (
        bert.position_in_block("attention.self.key.weight")
        < bert.position_in_block("output.LayerNorm.bias")
        < bert.position_in_block("odd.weight")
    )


def _table(key):
    return next(table for table in all_facts() if table.key == key)
