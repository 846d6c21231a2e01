"""The contents of a folder for Transformers and of one for open_clip: weights with their names, configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from merging.base.errors import CheckpointError, MergingError
from merging.images.image_encoder import EPS
from merging.models.checkpoint import Checkpoint
from merging.models.formats.configs import OPEN_CLIP, OPEN_CLIP_WEIGHTS, PREPROCESSOR, TRANSFORMERS
from merging.sharing.export import export_names
from merging.sharing.export.export_tower import ExportTower
from merging.sharing.export.text_side import TextSide, compute_mlp_ratio

BICUBIC = 3  # Pillow's number of that interpolation
HIGHEST_TOKEN_POOLING_ID = 2  # with this eos_token_id, Transformers pools at the highest token id, as open_clip does
# Text towers of the published models by (width of the visual tower, embedding): width, heads, layers.
TEXT_TOWER_SIZES = {(768, 512): (512, 8, 12), (1024, 768): (768, 12, 12), (1280, 1024): (1024, 16, 24)}
STAND_IN_SIZES = (64, 1, 1)  # of the text tower that open_clip builds if none is exported
CONTEXT_LENGTH, VOCABULARY_SIZE = 77, 49408


class ExportTarget(Protocol):
    """A library that loads the folder."""

    @property
    def library(self) -> str: ...  # its name on the Hub

    @property
    def file(self) -> str: ...  # the name of the weights' file

    @property
    def loading_note(self) -> str: ...  # a sentence of the card on loading the text tower

    def max_file_bytes(self, shard: int) -> int:
        """Bytes above which the weights are sharded."""

    def find_refusal(self, text: TextSide, tower: ExportTower) -> str:
        """Why a text side cannot be exported with a tower; empty if it can."""

    def view_tensors(self, tower: ExportTower) -> Checkpoint:
        """The weights with the library's names."""

    def make_configs(self, tower: ExportTower) -> Mapping[str, Mapping[str, Any]]:
        """{file name: its contents}."""

    def task_name(self, tower: ExportTower) -> str:
        """The Hub's name for the task of the model."""

    def write_loading_code(self, tower: ExportTower, folder: str) -> str:
        """Code that loads the model and computes an image's features."""


@dataclass(frozen=True)
class ForTransformers:
    """A folder for ``CLIPModel.from_pretrained``, or for Transformers' vision models if there is no text side."""

    library: str = "transformers"
    file: str = "model.safetensors"
    loading_note: str = (
        " `CLIPModel.from_pretrained(folder)` loads the text tower, too. The tokenizer is that of the "
        "pretrained model and not in the folder."
    )

    def max_file_bytes(self, shard: int) -> int:
        return shard

    def find_refusal(self, text: TextSide, tower: ExportTower) -> str:
        if text.unsupported_field:
            return f"the text tower in {text.source} has {text.unsupported_field}, which Transformers does not support"
        return "" if tower.has_projection else "the image tower has no output projection, which a whole CLIP model has"

    def view_tensors(self, tower: ExportTower) -> Checkpoint:
        return tower.to_transformers()

    def make_configs(self, tower: ExportTower) -> Mapping[str, Mapping[str, Any]]:
        a = tower.architecture
        vision = {
            **self._make_shared_fields(tower, a.width, tower.mlp_width, a.heads, a.layers),
            "image_size": a.image_size,
            "model_type": "clip_vision_model",
            "num_channels": 3,
            "patch_size": a.patch_size,
        }
        model_fields = {"architectures": [self._model_class(tower)], "dtype": tower.dtype}
        config = {**model_fields, **vision}
        if (text := tower.text) is not None:
            sizes = [text.config[name] for name in ("width", "heads", "layers")]
            text_config = {
                **self._make_shared_fields(tower, sizes[0], text.mlp_width, *sizes[1:]),
                "eos_token_id": HIGHEST_TOKEN_POOLING_ID,
                "max_position_embeddings": text.config["context_length"],
                "model_type": "clip_text_model",
                "vocab_size": text.config["vocab_size"],
            }
            towers = {"projection_dim": a.embed_dim, "text_config": text_config, "vision_config": vision}
            config = {**model_fields, "initializer_factor": 1.0, "model_type": "clip", **towers}
        images = {
            "crop_size": {"height": a.image_size, "width": a.image_size},
            "do_center_crop": True,
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": list(tower.mean),
            "image_processor_type": "CLIPImageProcessor",
            "image_std": list(tower.std),
            "resample": BICUBIC,
            "rescale_factor": 1 / 255,
            "size": {"shortest_edge": a.image_size},
        }
        return {TRANSFORMERS: config, PREPROCESSOR: images}

    def task_name(self, tower: ExportTower) -> str:
        return "zero-shot-image-classification" if tower.text else "image-feature-extraction"

    def write_loading_code(self, tower: ExportTower, folder: str) -> str:
        model, features = self._vision_class(tower), "image_embeds" if tower.has_projection else "pooler_output"
        return f"""\
from transformers import CLIPImageProcessor, {model}

folder = {folder!r}
model = {model}.from_pretrained(folder)
processor = CLIPImageProcessor.from_pretrained(folder)
features = model(**processor(images=image, return_tensors="pt")).{features}
"""

    def _make_shared_fields(self, tower: ExportTower, width: int, mlp: int, heads: int, layers: int) -> dict[str, Any]:
        """The fields that the configurations of both towers have."""
        return {
            "attention_dropout": 0.0,
            "hidden_act": tower.activation,
            "hidden_size": width,
            "initializer_factor": 1.0,
            "initializer_range": 0.02,
            "intermediate_size": mlp,
            "layer_norm_eps": EPS,
            "num_attention_heads": heads,
            "num_hidden_layers": layers,
            "projection_dim": tower.architecture.embed_dim,
        }

    def _model_class(self, tower: ExportTower) -> str:
        return "CLIPModel" if tower.text else self._vision_class(tower)

    def _vision_class(self, tower: ExportTower) -> str:
        return "CLIPVisionModelWithProjection" if tower.has_projection else "CLIPVisionModel"


@dataclass(frozen=True)
class ForOpenClip:
    """A folder for open_clip's ``local-dir:``, with the text side if there is one."""

    library: str = "open_clip"
    file: str = OPEN_CLIP_WEIGHTS[0]
    loading_note: str = " `model.encode_text` runs the text tower on tokens of open_clip's tokenizer."

    def max_file_bytes(self, shard: int) -> int:
        return 1 << 62  # open_clip reads one file

    def find_refusal(self, text: TextSide, tower: ExportTower) -> str:
        return ""

    def view_tensors(self, tower: ExportTower) -> Checkpoint:
        if not tower.has_projection:
            raise CheckpointError(
                f"{tower.checkpoint.name} has no output projection, which all towers of open_clip have. Export "
                "the model to hf, or convert that folder with the pretrained model as its base (convert --base), whose "
                "projection is then used."
            )
        return tower.to_open_clip()

    def make_configs(self, tower: ExportTower) -> Mapping[str, Mapping[str, Any]]:
        a = tower.architecture
        vision: dict[str, Any] = {"image_size": a.image_size, "layers": a.layers, "width": a.width}
        vision |= {"head_width": a.width // a.heads, "patch_size": a.patch_size}
        if tower.mlp_width != 4 * a.width:
            vision["mlp_ratio"] = compute_mlp_ratio(tower.mlp_width, a.width)
        width, heads, layers = TEXT_TOWER_SIZES.get((a.width, a.embed_dim), STAND_IN_SIZES)
        stand_in = {
            "context_length": CONTEXT_LENGTH,
            "vocab_size": VOCABULARY_SIZE,
            "width": width,
            "heads": heads,
            "layers": layers,
        }
        model = {"embed_dim": a.embed_dim, "quick_gelu": a.quick_gelu, "vision_cfg": vision}
        model["text_cfg"] = dict(tower.text.config if tower.text else stand_in)
        images = {
            "mean": list(tower.mean),
            "std": list(tower.std),
            "interpolation": "bicubic",
            "resize_mode": "shortest",
        }
        return {OPEN_CLIP: {"model_cfg": model, "preprocess_cfg": images}}

    def task_name(self, tower: ExportTower) -> str:
        return "zero-shot-image-classification" if tower.text else "image-feature-extraction"

    def write_loading_code(self, tower: ExportTower, folder: str) -> str:
        create_function = "open_clip.create_model_and_transforms"
        if tower.text:
            return f"""\
import open_clip

folder = {folder!r}
model, _, preprocess = {create_function}(f"local-dir:{{folder}}")
features = model.eval().encode_image(preprocess(image)[None])
"""
        return f"""\
import open_clip
from safetensors.torch import load_file

folder = {folder!r}
model, _, preprocess = {create_function}(f"local-dir:{{folder}}", load_weights=False)
model.load_state_dict(load_file(f"{{folder}}/{self.file}"), strict=False)  # the folder has only the image tower
features = model.eval().encode_image(preprocess(image)[None])
"""


TARGETS: Mapping[str, ExportTarget] = dict(zip(export_names.TARGETS, (ForTransformers(), ForOpenClip()), strict=True))


def find_target(key: str) -> ExportTarget:
    """The target of that key. Raises MergingError, which lists the known keys."""
    if key not in TARGETS:
        raise MergingError(f"A model is exported to {' or '.join(map(repr, TARGETS))}; got {key!r}.")
    return TARGETS[key]
