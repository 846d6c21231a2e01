"""A model prepared for an export: a whole visual tower, facts beyond its shapes, and an optional text side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from merging.base.errors import CheckpointError, TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.preprocess import MEAN, STD
from merging.models.architecture import Architecture, add_stated_architecture, architecture_in_metadata
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import CheckpointView, DerivedTensor, convert_naming, rename_tensors
from merging.models.families import ACTIVATIONS
from merging.models.formats.configs import normalization
from merging.models.head_detection import refuse_head
from merging.models.stated_architecture import NOTHING_STATED, StatedArchitecture
from merging.models.tensor_info import dtype_name
from merging.models.text_tower import to_transformers_names
from merging.models.tower_names import PROJ
from merging.sharing.export import tower_shapes
from merging.sharing.export.text_side import TextSide


@dataclass(frozen=True)
class ExportTower:
    """One model prepared for an export, with the values of its configuration.

    ``text`` is the text side that is exported with it; without one, ``image_only`` is the reason.
    """

    checkpoint: Checkpoint
    architecture: Architecture
    mlp_width: int
    has_projection: bool  # whether the tower has an output projection
    dtype: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    warnings: tuple[str, ...]
    text: TextSide | None = None
    image_only: str = ""

    @property
    def activation(self) -> str:
        """Transformers' name of the activation."""
        return ACTIVATIONS[0] if self.architecture.quick_gelu else ACTIVATIONS[1]

    @property
    def note(self) -> str:
        """A sentence on what the export lacks; empty if it is a whole CLIP model."""
        if self.text is not None:
            return ""
        return f"The export holds the image tower alone, without a text tower: {self.image_only}."

    @property
    def architecture_json(self) -> str:
        """The architecture as JSON, for the metadata of this program's files."""
        a = self.architecture
        sizes = {"image_size": a.image_size, "layers": a.layers, "width": a.width}
        vision = {**sizes, "head_width": a.width // a.heads, "patch_size": a.patch_size}
        images = {"mean": list(self.mean), "std": list(self.std)}
        text = {"text_cfg": dict(self.text.config)} if self.text else {}
        architecture = {"embed_dim": a.embed_dim, "quick_gelu": a.quick_gelu, "vision_cfg": vision, **text}
        return json.dumps({**architecture, "preprocess": images})

    def to_transformers(self) -> Checkpoint:
        """The tower under Transformers' names, with the text side if there is one."""
        view = convert_naming(self.checkpoint, "hf")
        return self._add_text(view, to_transformers_names(self.text.tensors)) if self.text else view

    def to_open_clip(self) -> Checkpoint:
        """The tower under open_clip's names, with the text side if there is one."""
        view = convert_naming(self.checkpoint, "open_clip")
        if self.text is None:
            return view
        text = self.text.tensors
        return self._add_text(view, rename_tensors(text, {name: name for name in text.infos}))

    def _add_text(self, view: Checkpoint, text: dict[str, DerivedTensor]) -> Checkpoint:
        parts = rename_tensors(view, {name: name for name in view.infos})
        return CheckpointView(self.checkpoint, parts | text, keeps_digest=False)


def complete_tower(
    checkpoint: Checkpoint,
    base: Checkpoint | None = None,
    activation: str | None = None,
    stated_architecture: StatedArchitecture = NOTHING_STATED,
) -> ExportTower:
    """A checkpoint as a complete tower with shapes that fit together.

    ``base``, then ``stated_architecture``, supply the architecture and activation that the checkpoint lacks.

    Raises:
        CheckpointError: the checkpoint has no complete tower, the number of heads is unknown, or
            ``stated_architecture`` contradicts the files.
    """
    tower = convert_naming(refuse_head(checkpoint), "open_clip_tower")  # without a prefix of the names
    stated = architecture_in_metadata(checkpoint)
    if base is not None and "vision_cfg" not in stated:
        stated = architecture_in_metadata(base) | stated
    tower.metadata = {"architecture": json.dumps(stated)} if stated else {}  # the next functions read it there
    stated = architecture_in_metadata(add_stated_architecture(tower, stated_architecture))
    tower.metadata = {"architecture": json.dumps(stated)} if stated else {}
    architecture = Architecture.from_checkpoint(tower)
    mlp_width = tower_shapes.read_hidden_width(tower)
    tower_shapes.check_shapes(tower, tower_shapes.list_vision_shapes(architecture, mlp_width), "visual")
    quick_gelu, warnings = _choose_activation(checkpoint.name, architecture, stated, activation)
    mean, std = _choose_normalization(tower, stated)
    return ExportTower(
        checkpoint=checkpoint,
        architecture=replace(architecture, quick_gelu=quick_gelu),
        mlp_width=mlp_width,
        has_projection=PROJ in tower.infos,
        dtype=_find_main_dtype(tower),
        mean=mean,
        std=std,
        warnings=warnings,
    )


def _choose_activation(
    name: str, architecture: Architecture, stated: Mapping[str, Any], activation: str | None
) -> tuple[bool, tuple[str, ...]]:
    """Whether the activation is QuickGELU, and a warning if it was assumed or contradicts the file."""
    stated_is_quick = stated.get("quick_gelu")
    if activation is None:
        if stated_is_quick is not None:
            return architecture.quick_gelu, ()
        assumption = (
            "QuickGELU, as in OpenAI's models" if architecture.quick_gelu else "GELU, as in the published ViT-H"
        )
        return architecture.quick_gelu, (
            f"No file states the activation of {name}; {assumption}, was assumed. Weights of LAION or DataComp mostly "
            "have GELU: then export again with the activation gelu (--activation).",
        )
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"An activation is 'quick_gelu' or 'gelu'; got {activation!r}.")
    is_quick = activation == ACTIVATIONS[0]
    if stated_is_quick is not None and bool(stated_is_quick) != is_quick:
        stated_activation = ACTIVATIONS[0] if stated_is_quick else ACTIVATIONS[1]
        return is_quick, (f"{name} states the activation {stated_activation}; {activation} was written, as requested.",)
    return is_quick, ()


def _choose_normalization(tower: Checkpoint, stated: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean (3,) and standard deviation (3,) of images: as stated, or of the model's benchmark, or OpenAI's."""
    images = stated.get("preprocess")
    if isinstance(images, dict) and (statistics := normalization(images.get("mean"), images.get("std"))):
        return tuple(statistics["preprocess"]["mean"]), tuple(statistics["preprocess"]["std"])
    try:
        benchmark = Benchmark.load()
    except TaskError:
        return MEAN, STD
    return (MEAN, STD) if benchmark.describe_misfit(tower) else (benchmark.mean, benchmark.std)


def _find_main_dtype(tower: Checkpoint) -> str:
    """The dtype of most scalars."""
    scalar_counts: Counter[str] = Counter()
    for info in tower.infos.values():
        scalar_counts[dtype_name(info.dtype)] += info.numel
    return scalar_counts.most_common(1)[0][0]
