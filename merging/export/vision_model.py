"""A model prepared for an export: a whole visual tower, what its shapes do not state, a text side if there is one."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from merging.benchmarks.benchmark import Benchmark
from merging.checkpoints.architecture import Architecture, stated_by
from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import ACTIVATIONS, OPEN_CLIP, TEXT_TOWER, UNUSED_TEXT
from merging.checkpoints.tensor_info import TensorInfo, dtype_name
from merging.checkpoints.tower_names import PROJ, VISUAL
from merging.checkpoints.views import CheckpointView, Derived, TensorSlice, in_naming
from merging.clip.preprocess import MEAN, STD
from merging.errors import CheckpointError, TaskError
from merging.formats.configs import normalization
from merging.text import first_few

TEXT_HEAD_WIDTH = 64  # of every published text tower
TENSORS_OF_A_BLOCK = 12
TEXT_NEEDS = {
    "positional_embedding", "text_projection", "logit_scale", "token_embedding.weight", "ln_final.weight",
    "ln_final.bias",
}  # fmt: skip


@dataclass(frozen=True)
class Tower:
    """One model prepared for an export, with what its configuration states.

    ``text`` is the configuration of the text side that ``checkpoint`` or the base has, None if there is no whole one.
    """

    checkpoint: Checkpoint
    architecture: Architecture
    mlp_width: int
    projected: bool  # whether it has an output projection
    dtype: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    text: Mapping[str, Any] | None
    text_source: Checkpoint | None
    warnings: tuple[str, ...]

    @property
    def activation(self) -> str:
        """Transformers' name of the activation."""
        return ACTIVATIONS[0] if self.architecture.quick_gelu else ACTIVATIONS[1]

    @property
    def stated(self) -> str:
        """The architecture as JSON, for the metadata of this program's files."""
        a = self.architecture
        sizes = {"image_size": a.image_size, "layers": a.layers, "width": a.width}
        vision = {**sizes, "head_width": a.width // a.heads, "patch_size": a.patch_size}
        images = {"mean": list(self.mean), "std": list(self.std)}
        text = {"text_cfg": dict(self.text)} if self.text else {}
        architecture = {"embed_dim": a.embed_dim, "quick_gelu": a.quick_gelu, "vision_cfg": vision, **text}
        return json.dumps({**architecture, "preprocess": images})

    def in_transformers(self) -> Checkpoint:
        """The tower under Transformers' names."""
        return in_naming(self.checkpoint, "hf")

    def in_open_clip(self) -> Checkpoint:
        """The tower under open_clip's names, with the text side if there is one."""
        view = in_naming(self.checkpoint, "open_clip")
        if self.text is None or self.text_source is None:
            return view
        parts = {name: Derived(info, (TensorSlice.whole(view, name),)) for name, info in view.infos.items()}
        source = self.text_source
        names = _text_names(source)
        text = {name: Derived(source.infos[name], (TensorSlice.whole(source, name),)) for name in names}
        return CheckpointView(self.checkpoint, parts | text, same=False)


def ready(checkpoint: Checkpoint, base: Checkpoint | None = None, activation: str | None = None) -> Tower:
    """A checkpoint as a complete tower with shapes that fit together.

    ``base`` states what the checkpoint does not: its architecture, activation and text side.

    Raises:
        CheckpointError: no tower, an incomplete one, or no file states how many heads it has.
    """
    bare = in_naming(checkpoint, "open_clip_tower")
    stated = stated_by(checkpoint)
    if base is not None and "vision_cfg" not in stated:
        stated = stated_by(base) | stated
    bare.metadata = {"architecture": json.dumps(stated)} if stated else {}
    architecture = Architecture.of(bare)
    mlp_width = _check_shapes(bare, architecture)
    quick_gelu, warnings = _activation(checkpoint.name, architecture, stated, activation)
    mean, std = _normalization(bare, stated)
    holder, text = None, None
    for source in filter(None, (checkpoint, base)):
        if text is None and (text := _text_side(source, stated_by(source), architecture)):
            holder = source
    return Tower(
        checkpoint=checkpoint,
        architecture=replace(architecture, quick_gelu=quick_gelu),
        mlp_width=mlp_width,
        projected=PROJ in bare.infos,
        dtype=_dtype(bare),
        mean=mean,
        std=std,
        text=text,
        text_source=holder,
        warnings=warnings,
    )


def _expected(a: Architecture, mlp: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a whole tower, without the projection."""
    w, p = a.width, a.patch_size
    tokens = (a.image_size // p) ** 2 + 1
    shapes = {"class_embedding": (w,), "positional_embedding": (tokens, w), "conv1.weight": (w, 3, p, p)}
    norms = ["ln_pre", "ln_post"]
    for block in range(a.layers):
        at = f"transformer.resblocks.{block}."
        norms += [at + "ln_1", at + "ln_2"]
        shapes |= {at + "attn.in_proj_weight": (3 * w, w), at + "attn.in_proj_bias": (3 * w,)}
        layers = {"attn.out_proj": (w, w), "mlp.c_fc": (mlp, w), "mlp.c_proj": (w, mlp)}
        for layer, shape in layers.items():
            shapes |= {f"{at}{layer}.weight": shape, f"{at}{layer}.bias": shape[:1]}
    for norm in norms:
        shapes |= {f"{norm}.weight": (w,), f"{norm}.bias": (w,)}
    return shapes


def _check_shapes(bare: Checkpoint, a: Architecture) -> int:
    """The hidden width of the MLPs; raises CheckpointError unless every tensor exists and fits."""
    first = bare.infos.get("transformer.resblocks.0.mlp.c_fc.weight", TensorInfo((), bare.infos["conv1.weight"].dtype))
    expected = _expected(a, first.shape[0] if first.shape else 0)
    if missing := [name for name in expected if name not in bare.infos]:
        raise CheckpointError(
            f"{bare.name} is not a whole visual tower: {len(missing)} tensors are missing ({first_few(missing)})."
        )
    for name, shape in expected.items():
        if bare.infos[name].shape != shape:
            actual = list(bare.infos[name].shape)
            raise CheckpointError(f"{bare.name}: {name!r} has the shape {actual}; {list(shape)} was expected.")
        if not bare.infos[name].dtype.is_floating_point:
            raise CheckpointError(f"{bare.name}: {name!r} holds {bare.infos[name].dtype}, not floating-point numbers.")
    return first.shape[0]


def _activation(
    name: str, architecture: Architecture, stated: Mapping[str, Any], activation: str | None
) -> tuple[bool, tuple[str, ...]]:
    """Whether it is QuickGELU, and a warning if that is assumed or contradicts the file."""
    stated_quick = stated.get("quick_gelu")
    if activation is None:
        if stated_quick is not None:
            return architecture.quick_gelu, ()
        assumed = "QuickGELU, as in OpenAI's models" if architecture.quick_gelu else "GELU, as in the published ViT-H"
        return architecture.quick_gelu, (
            f"Nothing beside {name} says which activation it has; {assumed}, was assumed. Weights of LAION or DataComp "
            "mostly have GELU: then export again with --activation gelu.",
        )
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"An activation is 'quick_gelu' or 'gelu'; got {activation!r}.")
    quick = activation == ACTIVATIONS[0]
    if stated_quick is not None and bool(stated_quick) != quick:
        other = ACTIVATIONS[0] if stated_quick else ACTIVATIONS[1]
        return quick, (f"{name} states the activation {other}; {activation} was written, as requested.",)
    return quick, ()


def _normalization(bare: Checkpoint, stated: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of images: as stated, or of the benchmark that fits the model, or OpenAI's."""
    images = stated.get("preprocess")
    if isinstance(images, dict) and (statistics := normalization(images.get("mean"), images.get("std"))):
        return tuple(statistics["preprocess"]["mean"]), tuple(statistics["preprocess"]["std"])
    try:
        benchmark = Benchmark.load()
    except TaskError:
        return MEAN, STD
    return (MEAN, STD) if benchmark.misfit(bare) else (benchmark.mean, benchmark.std)


def _dtype(bare: Checkpoint) -> str:
    """The most frequent dtype, by numbers."""
    numbers: Counter[str] = Counter()
    for info in bare.infos.values():
        numbers[dtype_name(info.dtype)] += info.numel
    return numbers.most_common(1)[0][0]


# --- the text side ---------------------------------------------------------------------------------------------------


def _text_names(checkpoint: Checkpoint) -> list[str]:
    """Names of a text side under open_clip's names; none in a tower by itself, whose blocks have the same names."""
    if not any(name.startswith(VISUAL) for name in checkpoint.infos):
        return []
    matches = {name: OPEN_CLIP.classify(name) for name in checkpoint.infos if name != "attn_mask"}
    return [name for name, match in matches.items() if match and match[1].part in {UNUSED_TEXT, TEXT_TOWER}]


def _text_side(checkpoint: Checkpoint, stated: Mapping[str, Any], vision: Architecture) -> dict[str, Any] | None:
    """open_clip's configuration of a checkpoint's text side; None if there is none or it is not whole."""
    shapes = {name: checkpoint.infos[name].shape for name in _text_names(checkpoint)}
    blocks = {int(name.split(".")[2]) for name in shapes if name.startswith("transformer.resblocks.")}
    whole = shapes.keys() >= TEXT_NEEDS and blocks and blocks == set(range(len(blocks)))
    if not whole or len(shapes) != len(TEXT_NEEDS) + TENSORS_OF_A_BLOCK * len(blocks):
        return None
    width = shapes["ln_final.weight"][0]
    embedding, hidden = shapes["token_embedding.weight"], shapes.get("transformer.resblocks.0.mlp.c_fc.weight", ())
    matrices = (embedding, shapes["positional_embedding"], hidden)
    if shapes["text_projection"] != (width, vision.embed_dim) or any(s[1:] != (width,) for s in matrices):
        return None
    stated_text = stated.get("text_cfg")
    stated_text = stated_text if isinstance(stated_text, dict) and stated_text.get("width") == width else {}
    plain = {key: value for key, value in stated_text.items() if isinstance(value, (int, float, str))}
    heads = plain.get("heads", width // TEXT_HEAD_WIDTH if width % TEXT_HEAD_WIDTH == 0 else None)
    if type(heads) is not int or heads < 1 or width % heads:
        return None
    sizes = {"context_length": shapes["positional_embedding"][0], "vocab_size": embedding[0], "width": width}
    ratio = {} if hidden[0] == 4 * width else {"mlp_ratio": ratio_of(hidden[0], width)}
    return {**plain, **sizes, "heads": heads, "layers": len(blocks), **ratio}


def ratio_of(hidden: int, width: int) -> float:
    """The ratio by which open_clip multiplies a width, rounding down, to get the hidden width of an MLP."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else math.nextafter(ratio, math.inf)
