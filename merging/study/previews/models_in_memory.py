"""Models in memory that previews compare: merged once; a changed recipe merges only the tensors that it affects."""

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
    """A model in memory: its stored tensors, and its tower in float32, which may move to another device.

    ``sections`` has a number for each section of the tower; sections with equal numbers have equal tensors.
    """

    tensors: Mapping[str, Tensor]
    encoder: Encoder
    sections: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MergeInMemory:
    """The models of a recipe: one as "merged", or one for each expert. ``digests`` are those of the recipe's inputs."""

    digests: Mapping[str, str]
    models: Mapping[str, ModelInMemory]
    recipe: Recipe | None = None  # None: the pretrained model


def list_tensors(merges: Iterable[MergeInMemory]) -> Iterator[Tensor]:
    """All tensors, of any shape, of the models of merges; tensors that models share occur several times."""
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
    """The model of a state dict ``tensors`` of any shapes; it shares equal sections with ``known`` models.

    ``like`` is a checkpoint with the architecture if the state dict has no metadata.
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
    """Move the towers of models to a device; shared tensors remain shared."""
    moved: dict[int, tuple[Tensor, Tensor]] = {}  # {id of the first: (tensor, moved)}; holding it keeps the id unique
    for model in models:
        for tensor in model.encoder.tensors.values():
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor, tensor.to(device)
        tensors = {name: moved[id(tensor)][1] for name, tensor in model.encoder.tensors.items()}
        model.encoder = replace(model.encoder, tensors=tensors)


def _are_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor], names: Collection[str]) -> bool:
    """Whether two towers have equal tensors under these names; the device is synchronized once for all of them."""
    if any(name not in one or one[name].shape != other[name].shape for name in names):
        return False
    return bool(torch.stack([(one[name] == other[name]).all() for name in names]).all().cpu())


def merge_in_memory(
    opened: OpenedRecipe,
    context: Context,
    evidence: Callable[[], LayerInputSource | None] = lambda: None,
    near: tuple[Mapping[str, ModelInMemory], Collection[str]] | None = None,
) -> dict[str, dict[str, Tensor]]:
    """The merged state dicts by "merged" or expert, in the shapes and dtypes of the pretrained model.

    ``near`` are models of the same names, and the only tensors in which the results can differ from them. ``evidence``
    is called only if tensors have to be merged.

    Raises:
        CheckpointError: a file was changed while it was read.
    """
    base = opened.pretrained
    if near is None:
        result = _run(opened, context, evidence())
    else:
        models, changed = near
        reset = pretrained_tensors(opened.recipe, base.parameters) & set(changed)
        remerged = set(changed) - reset
        state = {name: base.read(name) for name in reset}
        result = {name: {**model.tensors, **state} for name, model in models.items()}
        if remerged:
            written = _run(opened, context, evidence(), remerged)
            result = {name: tensors | {key: written[name][key] for key in remerged} for name, tensors in result.items()}
    opened.raise_if_changed()
    return result


def _run(
    opened: OpenedRecipe, context: Context, evidence: LayerInputSource | None, only: Collection[str] | None = None
) -> dict[str, dict[str, Tensor]]:
    """The engine's state dicts by model; with ``only``, other tensors are not written."""
    models = opened.recipe, opened.pretrained, opened.experts
    result = engine.run_recipe(*models, layer_inputs=evidence, only=only, context=context.without_progress())
    return result.task_state_dicts or {MERGED: result.state_dict}
