"""Small state dicts of networks other than CLIP, with the names and shapes that Transformers writes, made by hand.

Random numbers in one width; what is tested of them are names, shapes, and that no tensor is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from merging.recipes.recipe import Recipe

WIDTH, WIDE, BLOCKS, TOKENS, POSITIONS, PATCH = 16, 32, 2, 20, 12, 8
Shapes = dict[str, tuple[int, ...]]


def linear(name: str, out: int = WIDTH, into: int = WIDTH) -> Shapes:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm(*names: str) -> Shapes:
    return {f"{name}.{kind}": (WIDTH,) for name in names for kind in ("weight", "bias")}


def table(name: str, rows: int = TOKENS) -> Shapes:
    return {f"{name}.weight": (rows, WIDTH)}


def under(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name: shape for name, shape in shapes.items()}


def blocks(prefix: str, block: Shapes) -> Shapes:
    return {name: shape for number in range(BLOCKS) for name, shape in under(f"{prefix}{number}.", block).items()}


def joined(*parts: Shapes) -> Shapes:
    return {name: shape for part in parts for name, shape in part.items()}


def linears(names: Iterable[str]) -> Shapes:
    return joined(*(linear(name) for name in names))


def _mlp() -> Shapes:
    return joined(linear("mlp.fc1", WIDE), linear("mlp.fc2", WIDTH, WIDE))


def blip_vision() -> Shapes:
    block = joined(
        norm("layer_norm1"), linear("self_attn.qkv", 3 * WIDTH), linear("self_attn.projection"), norm("layer_norm2"),
        _mlp(),
    )  # fmt: skip
    stem: Shapes = {
        "embeddings.class_embedding": (1, 1, WIDTH), "embeddings.position_embedding": (1, 5, WIDTH),
        "embeddings.patch_embedding.weight": (WIDTH, 3, PATCH, PATCH), "embeddings.patch_embedding.bias": (WIDTH,),
    }  # fmt: skip
    return joined(stem, blocks("encoder.layers.", block), norm("post_layernorm"))


def _bert_block(crossed: bool = False) -> Shapes:
    layers = ("attention", "crossattention") if crossed else ("attention",)
    attention = [
        joined(linears(f"{at}.self.{x}" for x in ("query", "key", "value")), linear(f"{at}.output.dense"),
               norm(f"{at}.output.LayerNorm")) for at in layers
    ]  # fmt: skip
    rest = (linear("intermediate.dense", WIDE), linear("output.dense", WIDTH, WIDE), norm("output.LayerNorm"))
    return joined(*attention, *rest)


def _bert(crossed: bool = False) -> Shapes:
    stem = joined(
        table("embeddings.word_embeddings"), table("embeddings.position_embeddings", POSITIONS),
        norm("embeddings.LayerNorm"),
    )  # fmt: skip
    return joined(stem, blocks("encoder.layer.", _bert_block(crossed)))


def blip_vqa() -> Shapes:
    words = joined(linear("transform.dense"), norm("transform.LayerNorm"), {"bias": (TOKENS,)})
    return joined(
        under("vision_model.", blip_vision()),
        under("text_encoder.", _bert(crossed=True)),
        under("text_decoder.bert.", _bert(crossed=True)),
        under("text_decoder.cls.predictions.", words),
    )


def bert() -> Shapes:
    """With a classifier."""
    return joined(
        under("bert.", joined(_bert(), table("embeddings.token_type_embeddings", 2), linear("pooler.dense"))),
        linear("classifier", 3),
    )


def t5() -> Shapes:
    def attention(name: str) -> Shapes:
        return {f"{name}.{x}.weight": (WIDTH, WIDTH) for x in "qkvo"}

    own = joined(attention("layer.0.SelfAttention"), {"layer.0.layer_norm.weight": (WIDTH,)})
    crossed = joined(attention("layer.1.EncDecAttention"), {"layer.1.layer_norm.weight": (WIDTH,)})
    bias: Shapes = {"block.0.layer.0.SelfAttention.relative_attention_bias.weight": (8, 2)}

    def stack(*parts: Shapes) -> Shapes:
        at = f"layer.{len(parts)}."
        dense: Shapes = {
            at + "DenseReluDense.wi.weight": (WIDE, WIDTH), at + "DenseReluDense.wo.weight": (WIDTH, WIDE),
            at + "layer_norm.weight": (WIDTH,),
        }  # fmt: skip
        return joined(blocks("block.", joined(*parts, dense)), bias, {"final_layer_norm.weight": (WIDTH,)})

    return joined(table("shared"), under("encoder.", stack(own)), under("decoder.", stack(own, crossed)))


def llama() -> Shapes:
    block: Shapes = {
        **{f"self_attn.{x}_proj.weight": (WIDTH, WIDTH) for x in "qkvo"},
        "mlp.gate_proj.weight": (WIDE, WIDTH), "mlp.up_proj.weight": (WIDE, WIDTH),
        "mlp.down_proj.weight": (WIDTH, WIDE), "input_layernorm.weight": (WIDTH,),
        "post_attention_layernorm.weight": (WIDTH,),
    }  # fmt: skip
    body = joined(table("embed_tokens"), blocks("layers.", block), {"norm.weight": (WIDTH,)})
    return joined(under("model.", body), table("lm_head"))


def gpt2() -> Shapes:
    block: Shapes = joined(
        norm("ln_1"), {"attn.c_attn.weight": (WIDTH, 3 * WIDTH), "attn.c_attn.bias": (3 * WIDTH,)},
        linear("attn.c_proj"), norm("ln_2"), {"mlp.c_fc.weight": (WIDTH, WIDE), "mlp.c_fc.bias": (WIDE,)},
        {"mlp.c_proj.weight": (WIDE, WIDTH), "mlp.c_proj.bias": (WIDTH,)},
    )  # fmt: skip
    body = joined(table("wte"), table("wpe", POSITIONS), blocks("h.", block), norm("ln_f"))
    return under("transformer.", body)


def dinov2() -> Shapes:
    block = joined(
        norm("norm1"), linears(f"attention.attention.{x}" for x in ("query", "key", "value")),
        linear("attention.output.dense"), {"layer_scale1.lambda1": (WIDTH,)}, norm("norm2"), _mlp(),
        {"layer_scale2.lambda1": (WIDTH,)},
    )  # fmt: skip
    stem: Shapes = {
        "embeddings.cls_token": (1, 1, WIDTH), "embeddings.mask_token": (1, WIDTH),
        "embeddings.position_embeddings": (1, 5, WIDTH),
        "embeddings.patch_embeddings.projection.weight": (WIDTH, 3, PATCH, PATCH),
        "embeddings.patch_embeddings.projection.bias": (WIDTH,),
    }  # fmt: skip
    return joined(stem, blocks("encoder.layer.", block), norm("layernorm"))


def _clip_block() -> Shapes:
    attention = linears(f"self_attn.{x}" for x in ("q_proj", "k_proj", "v_proj", "out_proj"))
    return joined(attention, norm("layer_norm1", "layer_norm2"), _mlp())


def siglip() -> Shapes:
    """The vision model alone, with its pooling head."""
    stem: Shapes = joined(
        {"embeddings.patch_embedding.weight": (WIDTH, 3, PATCH, PATCH), "embeddings.patch_embedding.bias": (WIDTH,)},
        table("embeddings.position_embedding", 4),
    )
    head: Shapes = joined(
        {"probe": (1, 1, WIDTH)},
        {"attention.in_proj_weight": (3 * WIDTH, WIDTH), "attention.in_proj_bias": (3 * WIDTH,)},
        linear("attention.out_proj"), norm("layernorm"), _mlp(),
    )  # fmt: skip
    return joined(stem, blocks("encoder.layers.", _clip_block()), norm("post_layernorm"), under("head.", head))


def llava() -> Shapes:
    """A whole CLIP tower beside a language model with more numbers."""
    stem: Shapes = joined(
        {"embeddings.class_embedding": (WIDTH,), "embeddings.patch_embedding.weight": (WIDTH, 3, PATCH, PATCH)},
        table("embeddings.position_embedding", 5),
    )
    tower = joined(stem, norm("pre_layrnorm"), blocks("encoder.layers.", _clip_block()), norm("post_layernorm"))
    return joined(
        under("vision_tower.vision_model.", tower),
        linears(["multi_modal_projector.linear_1", "multi_modal_projector.linear_2"]),
        under("language_model.", joined(llama(), {"model.embed_tokens.weight": (40 * TOKENS, WIDTH)})),
    )


def resnet() -> Shapes:
    """Of torchvision: one basic block a stage."""
    shapes: Shapes = {"conv1.weight": (WIDTH, 3, 7, 7)}
    names = ["bn1"]
    for stage in range(1, 5):
        for layer in (1, 2):
            shapes[f"layer{stage}.0.conv{layer}.weight"] = (WIDTH, WIDTH, 3, 3)
            names.append(f"layer{stage}.0.bn{layer}")
    for name in names:
        shapes |= norm(name) | {f"{name}.running_mean": (WIDTH,), f"{name}.running_var": (WIDTH,)}
        shapes[f"{name}.num_batches_tracked"] = ()
    return joined(shapes, linear("fc", 10))


KINDS = {
    "BLIP vision": blip_vision, "BLIP VQA": blip_vqa, "BERT": bert, "T5": t5, "Llama": llama, "GPT-2": gpt2,
    "DINOv2": dinov2, "SigLIP": siglip, "LLaVA": llava, "ResNet": resnet,
}  # fmt: skip


def pretrained(kind: str) -> dict[str, Tensor]:
    """A state dict of that kind; counters of batches are integers, variances are positive."""
    draw = torch.Generator().manual_seed(0)
    found = {name: 0.3 * torch.randn(shape, generator=draw) for name, shape in KINDS[kind]().items()}
    found |= {name: value.abs() + 1 for name, value in found.items() if name.endswith("running_var")}
    return found | {name: torch.tensor(7) for name in found if name.endswith("num_batches_tracked")}


def expert(base: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The pretrained model, every floating-point tensor of it moved a little."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: value + 0.02 * torch.randn(value.shape, generator=draw) if value.is_floating_point() else value.clone()
        for name, value in base.items()
    }


def write_team(folder: Path, kind: str, names: Iterable[str]) -> dict[str, str]:
    """Files of a pretrained model and its experts in a folder; {name: reference to the file in a models folder}."""
    folder.mkdir()
    base = pretrained(kind)
    states = {"pretrained": base, **{name: expert(base, seed) for seed, name in enumerate(names, start=1)}}
    for name, state in states.items():
        save_file(state, folder / f"{name}.safetensors")
    return {name: f"models:{folder.name}/{name}.safetensors" for name in states}


def recipe_of_t5(folder: Path, names: Iterable[str]) -> Recipe:
    """Task arithmetic of the experts of a T5, whose files are written to a folder."""
    files = {name: str(folder / f"{name}.safetensors") for name in write_team(folder, "T5", names)}
    return Recipe.build("task_arithmetic", pretrained=files.pop("pretrained"), experts=files)
