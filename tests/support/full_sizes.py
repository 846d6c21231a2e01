"""Networks of Transformers, timm and torchvision at their published sizes, on torch's meta device: without numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import peers
import torch
from module_roles import layers
from torch import nn

# Class of a configuration, class of a model.
TRANSFORMERS = """
Bert ForPreTraining, Roberta ForMaskedLM, XLMRoberta Model, Electra ForPreTraining, Camembert Model,
DebertaV2 ForMaskedLM, Deberta Model, DistilBert Model, Albert Model, ModernBert Model, MPNet Model,
T5 ForConditionalGeneration, MT5 Model, UMT5 ForConditionalGeneration, Bart ForConditionalGeneration, MBart Model,
Pegasus Model, Marian MTModel, M2M100 Model, Llama ForCausalLM, Qwen2 ForCausalLM, Qwen3 ForCausalLM,
Mistral ForCausalLM, Gemma ForCausalLM, Gemma2 ForCausalLM, Phi3 ForCausalLM, Phi ForCausalLM, Olmo ForCausalLM,
Olmo2 ForCausalLM, StableLm ForCausalLM, Starcoder2 ForCausalLM, Cohere ForCausalLM, Granite ForCausalLM,
Falcon ForCausalLM, Bloom ForCausalLM, OPT ForCausalLM, GPTNeoX ForCausalLM, GPTNeo ForCausalLM, GPTJ ForCausalLM,
Mamba ForCausalLM, Mixtral ForCausalLM, Qwen3Moe ForCausalLM, GPT2 LMHeadModel, ViT ForImageClassification, DeiT Model,
Beit Model, Dinov2 Model, Dinov2WithRegisters Model, DINOv3ViT Model, Siglip Model, SiglipVision Model,
Swin ForImageClassification, Swinv2 Model, ConvNext ForImageClassification, ConvNextV2 Model,
RegNet ForImageClassification, ResNet ForImageClassification, Segformer Model, PvtV2 Model,
Whisper ForConditionalGeneration, Wav2Vec2 Model, Hubert Model, Blip ForQuestionAnswering,
Blip2 ForConditionalGeneration, Llava ForConditionalGeneration, PaliGemma ForConditionalGeneration, CLIP Model,
Idefics3 Model, Qwen2VL ForConditionalGeneration, Hiera Model, VideoMAE Model, AST Model
"""
TIMM = """
vit_base_patch16_224:12 deit3_base_patch16_224:12 eva02_base_patch14_224:12 beit_base_patch16_224:12
swin_tiny_patch4_window7_224:12 swinv2_tiny_window8_256:12 convnext_tiny:18 convnextv2_tiny:18 resnet50:16
regnety_032:21 efficientnet_b0:16 mobilenetv3_large_100:16 mixer_b16_224:12 maxvit_tiny_tf_224:11 coatnet_0_rw_224:14
densenet121: vgg16: inception_v3: hiera_tiny_224:12 vit_so400m_patch14_siglip_224:27 nfnet_f0:12 poolformer_s12:12
davit_tiny: resnext50_32x4d:16
"""
TORCHVISION = """
alexnet: vgg16_bn: resnet50:16 resnext50_32x4d:16 wide_resnet50_2:16 densenet121: efficientnet_b0: efficientnet_v2_s:
mobilenet_v2: mobilenet_v3_large: convnext_tiny: vit_b_16:12 swin_t: swin_v2_t: maxvit_t: shufflenet_v2_x1_0:
squeezenet1_0: mnasnet1_0: googlenet: inception_v3:
"""  # those without a number count their stems or what lies inside blocks, or are no chain of blocks

OTHER_BLOCKS = {
    "Albert": 0,  # all layers share the weights of one
    "Blip": 36, "Blip2": 63,  # text decoder, and query transformer, which the configuration does not count
    "regnety_032": 23,  # with what stands before the first stage
}  # fmt: skip
EXCUSED = {
    "logit_scale of SiglipModel": "one number between two towers stays the pretrained model's",
    "logit_bias of SiglipModel": "likewise",
    "logit_scale of CLIPModel": "likewise",
    ".bias of ConvNextV2GRN": "a bias of four sides counts as a table, which all methods treat alike",
    ".gain of ScaledStdConv2d": "a scale of four sides, likewise",
}

Make = Callable[[], nn.Module]


def networks() -> Iterator[tuple[str, Make, int | None]]:
    """Name, what makes the network, and the number of its blocks, if that is known."""
    t = peers.transformers()
    for item in TRANSFORMERS.replace("\n", " ").split(","):
        name, rest = item.split()
        config = getattr(t, f"{name}Config")()
        yield name, _of(getattr(t, name + rest), config), layers(config)
    peers.open_clip()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import timm
        import torchvision.models as known
    for text, make in ((TIMM, timm.create_model), (TORCHVISION, known.get_model)):
        for item in text.split():
            name, _, blocks = item.partition(":")
            yield name, _of(make, name), int(blocks) if blocks else None


def _of(make: Callable[..., Any], given: Any) -> Make:
    return lambda: make(given)


def on_meta(make: Make) -> nn.Module:
    """A network whose tensors have shapes, and no numbers."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        return make()


def excused(one: str) -> bool:
    """Whether what is inferred of a tensor is known to differ from its module's."""
    return any(words in one for words in EXCUSED)
