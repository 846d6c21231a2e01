"""Small models of other libraries, written as these libraries write them: a pretrained model and two experts a kind.

The models have the classes and names of published ones, and sizes of ours; their numbers are random.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers
import pytest
import torch
from daily import some_of
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

HIDDEN, BLOCKS, TOKENS, LABELS, IMAGE, PATCH = 16, 2, 40, 3, 16, 8
SIZES = {"hidden_size": HIDDEN, "num_hidden_layers": BLOCKS, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = {"vocab_size": TOKENS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PICTURE = {"image_size": IMAGE, "patch_size": PATCH}
SPREAD, MOVED = 0.1, 0.02  # standard deviations of what a pretrained model has more than its library's, of fine-tuning
WEIGHTS = "model.safetensors"


def _text(**more: Any) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(4, TOKENS, (2, 6), generator=torch.Generator().manual_seed(1))} | more


def _answer_inputs() -> dict[str, Tensor]:
    return _text(decoder_input_ids=torch.tensor([[2, 5, 6, 7], [2, 9, 8, 4]]))


def _images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, IMAGE, IMAGE, generator=torch.Generator().manual_seed(1))}


def _plain_images() -> dict[str, Tensor]:
    return {"x": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))}


def _sounds() -> dict[str, Tensor]:
    given = torch.randn(1, 8, 24, generator=torch.Generator().manual_seed(1))
    return {"input_features": given, "decoder_input_ids": torch.tensor([[2, 5, 6]])}


def _question() -> dict[str, Tensor]:
    asked = _text()["input_ids"]
    return {"input_ids": asked, "labels": asked.clone()} | _images()


def _picture_and_text() -> dict[str, Tensor]:
    return {"input_ids": torch.tensor([[1, 3, 3, 3, 3, 5, 6]]), "pixel_values": _images()["pixel_values"][:1]}


def _vectors() -> dict[str, Tensor]:
    return {"input": torch.randn(4, HIDDEN, generator=torch.Generator().manual_seed(1))}


def _sequences() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {word: torch.randn(2, 5, HIDDEN, generator=draw) for word in ("src", "tgt")}


@dataclass(frozen=True)
class Kind:
    """What makes a model of a kind, and batches for it. ``towers`` are blocks by tower, ``said`` what it is called."""

    make: Callable[[], nn.Module]
    given: Callable[[], Mapping[str, Tensor]]
    said: str
    towers: Mapping[str, int] = field(default_factory=lambda: {"": BLOCKS})


def _make_from_config(model: str, config: str, **sizes: Any) -> Callable[[], nn.Module]:
    """A class of Transformers on a configuration."""

    def made() -> nn.Module:
        t = peers.transformers()
        built: nn.Module = getattr(t, model)(getattr(t, config)(**sizes))
        return built

    return made


def _llama_like(name: str, **more: Any) -> Kind:
    sizes = {**SIZES, **TEXT, "num_key_value_heads": 1, "head_dim": 8, **more}
    return Kind(_make_from_config(f"{name}ForCausalLM", f"{name}Config", **sizes), _text, LLAMA)


def _llava() -> nn.Module:
    t = peers.transformers()
    vision = t.CLIPVisionConfig(**SIZES, **PICTURE, projection_dim=8)
    text = t.LlamaConfig(**{**SIZES, **TEXT, "vocab_size": 400}, num_key_value_heads=1)
    config = t.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=3, image_token_id=3, vision_feature_layer=-1
    )
    built: nn.Module = t.LlavaForConditionalGeneration(config)
    return built


def _blip() -> nn.Module:
    t = peers.transformers()
    text = {**SIZES, **TEXT, "encoder_hidden_size": HIDDEN, "projection_dim": 8, "max_position_embeddings": 12,
            "sep_token_id": 2}  # fmt: skip
    config = t.BlipConfig(text_config=text, vision_config={**SIZES, **PICTURE, "projection_dim": 8}, projection_dim=8)
    built: nn.Module = t.BlipForQuestionAnswering(config)
    return built


def _torchvision(name: str, **more: Any) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        peers.open_clip()  # it imports torchvision beside a torch of other wheels
        import torchvision.models as known

        built: nn.Module = getattr(known, name)(num_classes=LABELS, **more)
        return built

    return made


def _torchvision_regnet() -> nn.Module:
    peers.open_clip()
    from torchvision.models.regnet import BlockParams, RegNet

    widths = BlockParams([1, 2], [8, 16], [8, 8], [1, 1], [2, 2], se_ratio=0.25)
    built: nn.Module = RegNet(widths, num_classes=LABELS, stem_width=8)
    return built


def _timm(name: str, **sizes: Any) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        peers.open_clip()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import timm

            built: nn.Module = timm.create_model(name, num_classes=LABELS, **sizes)
        return built

    return made


class Plain(nn.Module):
    """A network that no library knows: blocks of a norm and two layers around a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(HIDDEN, HIDDEN)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 24), nn.GELU(), nn.Linear(24, HIDDEN))
            for _ in range(4)
        )
        self.readout = nn.Linear(HIDDEN, LABELS)

    def forward(self, input: Tensor) -> Tensor:
        x = self.entry(input)
        for stage in self.stages:
            x = x + stage(x)
        return self.readout(x)  # type: ignore[no-any-return]


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(HIDDEN, 24), nn.GELU(), nn.Linear(24, LABELS))


def _torch_transformer() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Transformer(HIDDEN, 2, BLOCKS, BLOCKS, 24, batch_first=True)


BERT, LLAMA = "BERT or RoBERTa", "Llama or a relative of it"
T5_SIZES = {"d_model": HIDDEN, "d_kv": 8, "d_ff": 24, "num_layers": BLOCKS, "num_heads": 2, "decoder_start_token_id": 0}
BART_SIZES = {"d_model": HIDDEN, "encoder_layers": BLOCKS, "decoder_layers": BLOCKS, "encoder_attention_heads": 2,
              "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}  # fmt: skip
BOTH = {"encoder": BLOCKS, "decoder": BLOCKS}
EXPERTS_OF_LAYER = {"num_experts_per_tok": 2, "num_key_value_heads": 1}

KINDS: dict[str, Kind] = {
    "BERT": Kind(_make_from_config("BertForSequenceClassification", "BertConfig", **SIZES, **TEXT), _text, BERT),
    "RoBERTa": Kind(_make_from_config("RobertaForMaskedLM", "RobertaConfig", **SIZES, **TEXT), _text, BERT),
    "DeBERTa-v3": Kind(
        _make_from_config("DebertaV2ForSequenceClassification", "DebertaV2Config", **SIZES, **TEXT,
        relative_attention=True,
            share_att_key=True, pos_att_type=["p2c", "c2p"], position_buckets=4, norm_rel_ebd="layer_norm",
            max_position_embeddings=16),
        _text, "DeBERTa",
    ),
    "DistilBERT": Kind(
        _make_from_config("DistilBertForMaskedLM", "DistilBertConfig", **TEXT, dim=HIDDEN, n_layers=BLOCKS, n_heads=2,
        hidden_dim=24),
        _text, "DistilBERT",
    ),
    "T5": Kind(_make_from_config("T5ForConditionalGeneration", "T5Config", **TEXT, **T5_SIZES), _answer_inputs, "T5",
        BOTH),
    "BART": Kind(_make_from_config("BartForConditionalGeneration", "BartConfig", **TEXT, **BART_SIZES), _answer_inputs,
        "BART", BOTH),
    "Llama": _llama_like("Llama"),
    "Qwen2": _llama_like("Qwen2"),
    "Qwen3": _llama_like("Qwen3"),
    "Mistral": _llama_like("Mistral"),
    "Gemma": _llama_like("Gemma"),
    "Phi-3": _llama_like("Phi3"),
    "Mixtral": _llama_like("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "Qwen3-MoE": _llama_like("Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8),
    "GPT-2": Kind(
        _make_from_config("GPT2LMHeadModel", "GPT2Config", **TEXT, n_embd=HIDDEN, n_layer=BLOCKS, n_head=2), _text,
        "GPT-2",
    ),
    "ViT": Kind(_make_from_config("ViTForImageClassification", "ViTConfig", **SIZES, **PICTURE), _images, "ViT"),
    "DINOv2": Kind(_make_from_config("Dinov2ForImageClassification", "Dinov2Config", **SIZES, **PICTURE), _images,
        "DINOv2"),
    "SigLIP": Kind(_make_from_config("SiglipVisionModel", "SiglipVisionConfig", **SIZES, **PICTURE), _images, "SigLIP"),
    "Swin": Kind(
        _make_from_config("SwinForImageClassification", "SwinConfig", image_size=IMAGE, patch_size=2, embed_dim=8,
        depths=[2, 2],
            num_heads=[2, 2], window_size=2),
        _images, "Swin", {"": 4},
    ),
    "ConvNeXt": Kind(
        _make_from_config("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[8, 16], depths=[1, 2],
        num_stages=2,
            patch_size=4, image_size=IMAGE),
        _images, "ConvNeXt", {"": 3},
    ),
    "RegNet": Kind(
        _make_from_config("RegNetForImageClassification", "RegNetConfig", embedding_size=8, hidden_sizes=[8, 16],
        depths=[1, 2],
            groups_width=8),
        _images, "ResNet or RegNet", {"": 3},
    ),
    "ResNet": Kind(
        _make_from_config("ResNetForImageClassification", "ResNetConfig", embedding_size=8, hidden_sizes=[8, 16],
        depths=[1, 2],
            layer_type="basic"),
        _images, "ResNet or RegNet", {"": 3},
    ),
    "Whisper": Kind(
        _make_from_config("WhisperForConditionalGeneration", "WhisperConfig", **TEXT, **BART_SIZES, num_mel_bins=8,
            max_source_positions=12, max_target_positions=8, decoder_start_token_id=2, suppress_tokens=None,
            begin_suppress_tokens=None),
        _sounds, "Whisper", BOTH,
    ),
    "BLIP": Kind(_blip, _question, "BLIP", dict.fromkeys(("vision_model", "text_encoder", "text_decoder"), BLOCKS)),
    "LLaVA": Kind(_llava, _picture_and_text, "LLaVA", {"vision_tower": BLOCKS, "language_model": BLOCKS}),
    "timm ViT": Kind(
        _timm("vit_tiny_patch16_224", img_size=32, patch_size=16, embed_dim=HIDDEN, depth=BLOCKS, num_heads=2),
        _plain_images, "ViT of timm",
    ),
    "timm ConvNeXt": Kind(_timm("convnext_atto", depths=(1, 1, 2, 1), dims=(4, 8, 8, 16)), _plain_images, "ConvNeXt",
                          {"": 5}),
    "torchvision ResNet": Kind(_torchvision("resnet18"), _plain_images, "ResNet of torchvision or timm", {"": 8}),
    "torchvision RegNet": Kind(_torchvision_regnet, _plain_images, "", {"": 3}),
    "torch Transformer": Kind(_torch_transformer, _sequences, "", BOTH),
    "layers without blocks": Kind(_layers, _vectors, "", {}),
    "anything else": Kind(Plain, _vectors, "", {"": 4}),
}  # fmt: skip

# Tests of merges run every day on those kinds that something is done for: several towers, transposed weights, experts
# in one tensor, no rows for a weight, scales by 1 + w, convolutions, no blocks.
SOME = ("T5", "GPT-2", "Mixtral", "SigLIP", "Gemma", "ResNet", "layers without blocks")
EVERY_KIND = pytest.mark.parametrize("kind", some_of(KINDS, *SOME))


def make_model(kind: str, seed: int = 0) -> nn.Module:
    """The pretrained model of a kind, or an expert of it: its weights moved, its running statistics too."""
    torch.manual_seed(0)
    model = KINDS[kind].make().eval()
    _move(model, 0, SPREAD)
    return _move(model, seed, MOVED) if seed else model


def _move(model: nn.Module, seed: int, size: float) -> nn.Module:
    """The same model, every weight of it moved, and every running statistic."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(size * torch.randn(value.shape, generator=draw))
        for name, value in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                value.add_(size * torch.rand(value.shape, generator=draw))
    return model


def save(model: nn.Module, folder: Path) -> Path:
    """The folder of a model as its library writes it."""
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(folder)
        return folder
    folder.mkdir(parents=True)
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()}, folder / WEIGHTS, {"format": "pt"}
    )
    return folder


def load(kind: str, folder: Path) -> nn.Module:
    """The model in a folder, by its library."""
    model = make_model(kind)
    if not hasattr(model, "from_pretrained"):
        model.load_state_dict(load_file(folder / WEIGHTS))
        return model
    loaded, about = type(model).from_pretrained(folder, output_loading_info=True)  # type: ignore[operator]
    assert not any(about[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), about
    found: nn.Module = loaded.eval()
    return found


def outputs(model: nn.Module, given: Mapping[str, Tensor]) -> list[Tensor]:
    """Every floating-point tensor among a model's outputs."""
    with torch.no_grad():
        found = model(**given)
    listed = found.values() if isinstance(found, Mapping) else [found]
    return [value for value in listed if isinstance(value, Tensor) and value.is_floating_point()]


def average_by_hand(pretrained: nn.Module, experts: list[nn.Module]) -> nn.Module:
    """A module that holds the mean of the experts' weights and running statistics."""
    states = [dict(expert.state_dict()) for expert in experts]
    with torch.no_grad():
        for name, value in pretrained.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.stack([state[name] for state in states]).mean(0))
    return pretrained
