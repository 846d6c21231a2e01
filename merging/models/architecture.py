"""The architecture of a CLIP tower, from the shapes of its tensors and the metadata of its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from merging.base.errors import CheckpointError
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import identity_view
from merging.models.families import GELU, QUICK_GELU
from merging.models.stated_architecture import DEFAULT_HEAD_WIDTH, NOTHING_STATED, StatedArchitecture, read_size
from merging.models.tower_names import group_tower_names, is_transposed_name, tower_names

# Width of a published tower (ViT-B, ViT-L, ViT-H): width of its heads.
PUBLISHED_HEAD_WIDTHS = {768: 64, 1024: 64, 1280: 80}
GELU_WIDTHS = (1280,)  # widths that OpenAI never published; all of OpenAI's models have QuickGELU


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a visual tower (image and patch in pixels) and its activation."""

    image_size: int
    patch_size: int
    width: int
    layers: int
    heads: int
    embed_dim: int
    quick_gelu: bool

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, fallback: Checkpoint | None = None) -> Self:
        """The architecture of a tower, from its shapes and its metadata.

        Fields that the metadata leaves out (a state dict in memory has no metadata) come from ``fallback``, usually the
        pretrained model, if it has the same shapes. If neither states a field, the number of heads is that of the
        published model of this width, and the activation is QuickGELU, as in every OpenAI model (GELU for ViT-H).

        Raises:
            CheckpointError: a tensor that a tower must have is missing, the metadata contradicts the shapes, or
                the number of heads is unknown.
        """
        sizes = sizes_from_shapes(checkpoint)
        width = sizes["width"]
        metadata_fields = (
            architecture_in_metadata(fallback)
            if fallback is not None and _have_same_shapes(checkpoint, fallback)
            else {}
        ) | architecture_in_metadata(checkpoint)
        default_head_width = (
            64 if "vision_cfg" in metadata_fields else PUBLISHED_HEAD_WIDTHS.get(width)
        )  # 64 is the default that open_clip omits
        head_width = metadata_fields.get("vision_cfg", {}).get("head_width", default_head_width)
        if type(head_width) is not int or head_width < 1:
            raise CheckpointError(
                f"{checkpoint.name}: nothing says how many heads a tower of width {width} has. State it: "
                "--architecture heads=N on the command line, architecture='heads=N' in Python and in recipes, with its "
                "own number."
            )
        if width % head_width:
            raise CheckpointError(f"{checkpoint.name}: width {width} is not a multiple of its head width {head_width}.")
        quick_gelu = bool(metadata_fields.get("quick_gelu", width not in GELU_WIDTHS))
        return cls(**sizes, heads=width // head_width, quick_gelu=quick_gelu)


def sizes_from_shapes(checkpoint: Checkpoint) -> dict[str, int]:
    """The sizes of a visual tower that its shapes show, by their names in ``Architecture``.

    Raises:
        CheckpointError: a tensor that a tower must have is missing or odd.
    """
    names = tower_names(checkpoint)
    shapes = {name: checkpoint.infos[stored[0]].shape for name, stored in names.items()}
    try:
        width, _, patch, _ = shapes["conv1.weight"]
        tokens = shapes["positional_embedding"][0]
        embed_dim = shapes["proj"][1 if is_transposed_name(names["proj"][0]) else 0] if "proj" in names else width
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError(f"{checkpoint.name} is not a visual tower: {error} is missing or odd.") from None
    layers = len({name.split(".")[2] for name in shapes if name.startswith("transformer.resblocks.")})
    side = round((tokens - 1) ** 0.5)
    return {"image_size": side * patch, "patch_size": patch, "width": width, "layers": layers, "embed_dim": embed_dim}


def _have_same_shapes(first: Checkpoint, second: Checkpoint) -> bool:
    """Whether two checkpoints hold the same names in the same shapes."""
    return {n: i.shape for n, i in first.infos.items()} == {n: i.shape for n, i in second.infos.items()}


def architecture_in_metadata(checkpoint: Checkpoint) -> dict[str, Any]:
    """The architecture that a checkpoint's metadata states, in open_clip's fields; empty if it states none.

    Raises:
        CheckpointError: the metadata is not a JSON mapping.
    """
    text = checkpoint.metadata.get("architecture")
    if text is None:
        return {}
    try:
        architecture = json.loads(text)
    except (ValueError, RecursionError):
        architecture = None
    if not isinstance(architecture, dict) or not isinstance(architecture.get("vision_cfg", {}), dict):
        raise CheckpointError(f"{checkpoint.name}: its metadata 'architecture' is not a JSON mapping.")
    return architecture


def add_stated_activation(checkpoint: Checkpoint, activation: str) -> Checkpoint:
    """The checkpoint with ``activation`` stated in its metadata; unchanged if ``activation`` is empty."""
    if not activation:
        return checkpoint
    view = identity_view(checkpoint)
    architecture = architecture_in_metadata(checkpoint) | {"quick_gelu": activation == QUICK_GELU}
    view.metadata = {**checkpoint.metadata, "architecture": json.dumps(architecture)}
    return view


def add_stated_architecture(
    checkpoint: Checkpoint, stated_architecture: StatedArchitecture, *, sizes: bool = True
) -> Checkpoint:
    """The checkpoint with the stated architecture in its metadata; unchanged if nothing is stated.

    Fields that the file states stay. Experts are opened with ``sizes=False``: their stated sizes are not compared with
    their shapes, and one without a visual tower is accepted, because a fit check reports both problems later.

    Raises:
        CheckpointError: the file or the shapes contradict a stated field (the message has both values), or the
            checkpoint has no visual tower.
    """
    if stated_architecture == NOTHING_STATED:
        return checkpoint
    try:
        shape_sizes = sizes_from_shapes(checkpoint)
    except CheckpointError:
        if sizes:
            raise
        shape_sizes = {}
    stated_metadata = architecture_in_metadata(checkpoint)
    if problems := list(_list_contradictions(stated_architecture, stated_metadata, shape_sizes, sizes=sizes)):
        raise CheckpointError(
            f"The architecture that was stated is not that of {checkpoint.name}: {'; '.join(problems)}. Leave that out."
        )
    if stated_architecture.heads and shape_sizes and shape_sizes["width"] % stated_architecture.heads:
        raise CheckpointError(
            f"{checkpoint.name} has the width {shape_sizes['width']}, which {stated_architecture.heads} heads cannot "
            "share."
        )
    new_metadata: dict[str, Any] = dict(stated_metadata)
    if stated_architecture.heads and shape_sizes:
        new_metadata["vision_cfg"] = {
            **stated_metadata.get("vision_cfg", {}),
            "head_width": shape_sizes["width"] // stated_architecture.heads,
        }
    if stated_architecture.text_heads:
        new_metadata["text_cfg"] = {**(stated_metadata.get("text_cfg") or {}), "heads": stated_architecture.text_heads}
    if stated_architecture.activation:
        new_metadata["quick_gelu"] = stated_architecture.activation == QUICK_GELU
    view = identity_view(checkpoint)
    view.metadata = {**checkpoint.metadata, "architecture": json.dumps(new_metadata)}
    return view


def _list_contradictions(
    stated_architecture: StatedArchitecture, metadata: Mapping[str, Any], shape_sizes: Mapping[str, int], *, sizes: bool
) -> Iterator[str]:
    """A sentence with both values for each stated field that the file contradicts."""
    metadata_architecture = StatedArchitecture.from_metadata(metadata)
    file_values: dict[str, Any] = dict(shape_sizes) if sizes else {}
    if "vision_cfg" in metadata and shape_sizes:
        file_values["heads"] = shape_sizes["width"] // (
            read_size(metadata["vision_cfg"], "head_width") or DEFAULT_HEAD_WIDTH
        )
    file_values |= {"text_heads": metadata_architecture.text_heads, "activation": metadata_architecture.activation}
    for name, value in asdict(stated_architecture).items():
        if value and file_values.get(name) and file_values[name] != value:
            yield f"{name}={value} was stated, and its file has {name}={file_values[name]}"


def activation_in_metadata(checkpoint: Checkpoint) -> str:
    """The activation that a checkpoint's metadata states; empty if it states none or cannot be read."""
    try:
        quick_gelu = architecture_in_metadata(checkpoint).get("quick_gelu")
    except CheckpointError:
        return ""
    return "" if quick_gelu is None else QUICK_GELU if quick_gelu else GELU


def heads_in_metadata(checkpoint: Checkpoint) -> int:
    """The number of attention heads that a checkpoint's metadata states; 0 if it states none or cannot be read."""
    try:
        head_width = architecture_in_metadata(checkpoint).get("vision_cfg", {}).get("head_width")
    except CheckpointError:
        return 0
    patches = group_tower_names(checkpoint.infos).get("conv1.weight")
    if patches is None or type(head_width) is not int or head_width < 1:
        return 0
    width = next(iter(checkpoint.infos[patches[0]].shape), 0)
    return width // head_width if width % head_width == 0 else 0
