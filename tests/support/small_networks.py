"""Small networks of Transformers with batches for them, made from configurations."""

from __future__ import annotations

from typing import Any

import peers
import torch
from torch import Tensor, nn

VOCABULARY, LENGTH = 40, 6


def small(kind: str) -> nn.Module:
    """A network of Transformers, with numbers of its own."""
    tf = peers.transformers()
    torch.manual_seed(0)
    text: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    if kind == "bert":
        return tf.BertForSequenceClassification(tf.BertConfig(**text, **sizes))
    if kind == "t5":
        own = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
        return tf.T5ForConditionalGeneration(tf.T5Config(**text, **own))
    if kind == "llama":
        return tf.LlamaForCausalLM(tf.LlamaConfig(**text, **sizes, num_key_value_heads=1))
    if kind == "gpt2":
        return tf.GPT2LMHeadModel(tf.GPT2Config(**text, n_embd=16, n_layer=2, n_head=2))
    if kind == "deberta":
        return tf.DebertaV2Model(tf.DebertaV2Config(**text, **sizes, relative_attention=True, share_att_key=True,
                                                    pos_att_type=["p2c", "c2p"]))  # fmt: skip
    return tf.ViTForImageClassification(tf.ViTConfig(**sizes, image_size=16, patch_size=8))


def batches(kind: str, count: int = 2) -> list[dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    if kind == "vit":
        return [{"pixel_values": torch.randn(2, 3, 16, 16, generator=draw)} for _ in range(count)]
    texts = [{"input_ids": torch.randint(3, VOCABULARY, (3, LENGTH), generator=draw)} for _ in range(count)]
    if kind == "t5":
        for batch in texts:
            batch["labels"] = torch.randint(3, VOCABULARY, (3, 4), generator=draw)
    return texts
