"""Models in memory that previews compare: merged once, and again only where a recipe changes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from merging.engine import run as engine
from merging.engine.layer_inputs import LayerInputSource
from merging.engine.outputs import MERGED
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.study.previews.affected_tensors import pretrained_tensors
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.study.runs.opened_recipe import OpenedRecipe

_numbers = itertools.count()  # names of sections in this process


@dataclass(eq=False)
class ModelInMemory:
    """A model in memory: its stored tensors, and the tower that runs, in float32, which may move to another device.

    ``sections`` names the tensors of each section of the tower: the same name, the same tensors.
    """

    tensors: Mapping[str, Tensor]
    encoder: Encoder
    sections: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MergeInMemory:
    """The models that a recipe gives: one as "merged", or one for each expert. ``digests`` are those of its inputs."""

    digests: Mapping[str, str]
    models: Mapping[str, ModelInMemory]
    recipe: Recipe | None = None  # None: the pretrained model


def list_tensors(merges: Iterable[MergeInMemory]) -> Iterator[Tensor]:
    """All their tensors; models share some."""
    for merge in merges:
        for model in merge.models.values():
            yield from model.tensors.values()
            yield from model.encoder.tensors.values()


def load_model(
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    device: torch.device,
    like: Checkpoint | None,
    known: Iterable[ModelInMemory],
) -> ModelInMemory:
    """A state dict as a model; tensors and names of sections that a known model has are shared.

    ``like`` has the architecture of a state dict without metadata.
    """
    checkpoint = MappingCheckpoint(tensors, MERGED)
    checkpoint.metadata = dict(metadata)
    encoder = Encoder.from_checkpoint(checkpoint, device, fallback=like)
    by_section: dict[int, list[str]] = {section: [] for section in range(encoder.sections)}
    for name in encoder.tensors:
        by_section[encoder.section_of(name)].append(name)
    alike = [model for model in known if model.encoder.architecture == encoder.architecture]
    shared, sections = dict(encoder.tensors), []
    for section, names in by_section.items():
        same = next((model for model in alike if _are_equal(model.encoder.tensors, encoder.tensors, names)), None)
        sections.append(next(_numbers) if same is None else same.sections[section])
        if same is not None:
            shared |= {name: same.encoder.tensors[name] for name in names}
    own = Encoder(encoder.architecture, shared, encoder.names)
    return ModelInMemory(dict(tensors), own, tuple(sections))


def move_models(models: Iterable[ModelInMemory], device: torch.device) -> None:
    """Move the towers of models to a device; what they share stays shared."""
    moved: dict[int, tuple[Tensor, Tensor]] = {}  # by the id of the first of the two, which is kept with it
    for model in models:
        for tensor in model.encoder.tensors.values():
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor, tensor.to(device)
        tensors = {name: moved[id(tensor)][1] for name, tensor in model.encoder.tensors.items()}
        model.encoder = replace(model.encoder, tensors=tensors)


def _are_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor], names: Collection[str]) -> bool:
    """Whether two towers have equal tensors under these names; a device is asked once for all of them."""
    if any(name not in one or one[name].shape != other[name].shape for name in names):
        return False
    return bool(torch.stack([(one[name] == other[name]).all() for name in names]).all().cpu())


def merge_in_memory(
    opened: OpenedRecipe,
    context: Context,
    evidence: Callable[[], LayerInputSource | None] = lambda: None,
    near: tuple[Mapping[str, ModelInMemory], Collection[str]] | None = None,
) -> dict[str, dict[str, Tensor]]:
    """The merged state dicts, by "merged" or by expert, in the pretrained model's dtypes: the engine's own.

    ``near`` are models of the same names, and the only tensors in which these can differ from them. ``evidence`` is
    asked for if something is merged.

    Raises:
        CheckpointError: a file was changed while it was read.
    """
    base = opened.pretrained
    if near is None:
        result = _run(opened, context, evidence())
    else:
        models, changed = near
        back = pretrained_tensors(opened.recipe, base.parameters) & set(changed)
        rest = set(changed) - back
        state = {name: base.read(name) for name in back}
        result = {name: {**model.tensors, **state} for name, model in models.items()}
        if rest:
            written = _run(opened, context, evidence(), rest)
            result = {name: tensors | {key: written[name][key] for key in rest} for name, tensors in result.items()}
    opened.raise_if_changed()
    return result


def _run(
    opened: OpenedRecipe, context: Context, evidence: LayerInputSource | None, only: Collection[str] | None = None
) -> dict[str, dict[str, Tensor]]:
    """The engine's state dicts, by model; with ``only``, nothing is written into the other tensors."""
    models = opened.recipe, opened.pretrained, opened.experts
    result = engine.run_recipe(*models, layer_inputs=evidence, only=only, context=context.without_progress())
    return result.task_state_dicts or {MERGED: result.state_dict}
