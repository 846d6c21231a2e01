"""The models of a benchmark: opened together, compared, and written as files that state their architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.base.errors import CompatibilityError, TaskError
from merging.base.progress import Meter
from merging.images.benchmarks.benchmark import MULTITASK
from merging.images.preprocess import MEAN, STD
from merging.models.architecture import (
    Architecture,
    activation_in_metadata,
    add_stated_activation,
    add_stated_architecture,
    architecture_in_metadata,
)
from merging.models.checkpoint import Checkpoint
from merging.models.families import TEXT_TOWER
from merging.models.formats.model_sources import ModelRef
from merging.models.formats.referenced_model import SUFFIX as REFERENCE
from merging.models.formats.referenced_model import write_reference
from merging.models.formats.safetensors import SafetensorsWriter
from merging.models.inspection.fit_check import check_fit
from merging.models.model_references import PRETRAINED
from merging.models.stated_architecture import NOTHING_STATED, StatedArchitecture
from merging.models.text_tower import stated_text_fields

ASSUMED_ACTIVATION = (
    "No file states the activation of the pretrained model; {} was assumed. If it has another "
    "one, name it with --activation, or as `activation` in the description."
)


@dataclass(frozen=True)
class BenchmarkModels:
    """A pretrained model and {name: model trained from it}, whose tensors have the pretrained model's names."""

    pretrained: Checkpoint
    trained: Mapping[str, Checkpoint]
    architecture: Architecture
    cautions: tuple[str, ...]

    @property
    def all_models(self) -> Mapping[str, Checkpoint]:
        """{name: model} of all models, the pretrained model first."""
        return {PRETRAINED: self.pretrained, **self.trained}

    @property
    def nbytes(self) -> int:
        """Bytes of all models as files."""
        return sum(_count_bytes(model) for model in self.all_models.values())


def open_models(
    pretrained: ModelRef,
    trained: Mapping[str, ModelRef],
    activation: str = "",
    stated: StatedArchitecture = NOTHING_STATED,
) -> BenchmarkModels:
    """The models of a benchmark; ``activation`` replaces a missing or wrong activation in their files.

    Raises:
        CheckpointError: a file is not a checkpoint, or contradicts ``stated``.
        TaskError: the models do not fit together; the message names the tensors.
    """
    base_model = add_stated_activation(add_stated_architecture(pretrained.open(PRETRAINED), stated), activation)
    experts = {name: model.open(name, base_model) for name, model in trained.items()}
    # The fit check below compares the sizes of the experts.
    opened = {
        name: add_stated_activation(add_stated_architecture(expert, stated, sizes=False), activation)
        for name, expert in experts.items()
    }
    architecture = Architecture.from_checkpoint(base_model)
    for name, model in opened.items():
        if architecture_in_metadata(model) and Architecture.from_checkpoint(model, fallback=base_model) != architecture:
            raise TaskError(f"{name} states another architecture than the pretrained model.")
    assumed = (
        ()
        if activation_in_metadata(base_model)
        else (ASSUMED_ACTIVATION.format("QuickGELU" if architecture.quick_gelu else "GELU"),)
    )
    if not opened:
        return BenchmarkModels(base_model, opened, architecture, assumed)
    report = check_fit(base_model, opened, sample=True)  # of large models, only some numbers are read
    if not report.mergeable:
        raise CompatibilityError(report.text(), report) if not report.ok else TaskError(report.text())
    warnings = tuple(report.text().split("\n")) if report.warnings else ()
    return BenchmarkModels(base_model, opened, architecture, (*assumed, *warnings))


def read_normalization(pretrained: Checkpoint) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean (3,) and standard deviation (3,) of colors, from the pretrained model's metadata or else CLIP's."""
    preprocess = architecture_in_metadata(pretrained).get("preprocess")
    if isinstance(preprocess, dict) and "mean" in preprocess and "std" in preprocess:
        return tuple(preprocess["mean"]), tuple(preprocess["std"])
    return MEAN, STD


def write_models(folder: Path, models: BenchmarkModels, meter: Meter) -> None:
    """Write every model as ``<name>.safetensors``, without its text transformer."""
    folder.mkdir()
    for name, model in models.all_models.items():
        about = _build_metadata(name, models)
        infos = {p.name: model.infos[p.name] for p in model.parameters if p.part != TEXT_TOWER}
        with SafetensorsWriter(folder / f"{name}.safetensors", infos, about) as writer:
            for tensor, info in infos.items():
                writer.write(tensor, model.read(tensor))
                meter.advance(info.nbytes, "Writing models", name)


def write_references(folder: Path, models: BenchmarkModels, paths: Mapping[str, Path]) -> None:
    """Write a reference to every model instead of the model; ``paths`` are {name: path}."""
    folder.mkdir()
    for name in models.all_models:
        # The file whose tensor names the model gets.
        like = "" if name == PRETRAINED else f"{PRETRAINED}{REFERENCE}"
        write_reference(folder / f"{name}{REFERENCE}", paths[name].absolute(), _build_metadata(name, models), like)


def _build_metadata(name: str, models: BenchmarkModels) -> dict[str, str]:
    """The metadata of a model's file."""
    role = name if name in (PRETRAINED, MULTITASK) else "expert"
    return {
        "architecture": json.dumps(_build_architecture(models)),
        "role": role,
        "task": name if role == "expert" else "",
        "from": Path(models.all_models[name].label).name,
    }


def write_text_tower(path: Path, text: Checkpoint, models: BenchmarkModels, meter: Meter) -> None:
    """Write the text tower of the models, for exports of whole CLIP models."""
    stated = _build_architecture(models) | {"text_cfg": dict(stated_text_fields(text))}
    about = {"architecture": json.dumps(stated), "role": "text tower", "from": Path(text.label).name}
    with SafetensorsWriter(path, text.infos, about) as writer:
        for tensor, info in text.infos.items():
            writer.write(tensor, text.read(tensor))
            meter.advance(info.nbytes, "Writing models", "text tower")


def _build_architecture(models: BenchmarkModels) -> dict[str, Any]:
    """The architecture in the form of a checkpoint's metadata."""
    tower = models.architecture
    fields = {"image_size": tower.image_size, "layers": tower.layers, "width": tower.width}
    fields |= {"head_width": tower.width // tower.heads, "patch_size": tower.patch_size}
    copied = {
        name: value
        for name, value in architecture_in_metadata(models.pretrained).items()
        if name in {"text_cfg", "preprocess"}
    }
    return {"embed_dim": tower.embed_dim, "quick_gelu": tower.quick_gelu, "vision_cfg": fields, **copied}


def _count_bytes(model: Checkpoint) -> int:
    """Bytes of a model without its text transformer."""
    return sum(model.infos[p.name].nbytes for p in model.parameters if p.part != TEXT_TOWER)
