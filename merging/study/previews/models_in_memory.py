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
from merging.study.previews.affected_tensors import find_pretrained_tensors
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.study.runs.opened_recipe import OpenedRecipe

_section_numbers = itertools.count()  # names of sections in this process


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
    fallback: Checkpoint | None,
    cached_models: Iterable[ModelInMemory],
) -> ModelInMemory:
    """The model of a state dict ``tensors`` of any shapes; it shares equal sections with ``cached_models`` models.

    ``fallback`` is a checkpoint with the architecture if the state dict has no metadata.
    """
    checkpoint = MappingCheckpoint(tensors, MERGED)
    checkpoint.metadata = dict(metadata)
    encoder = Encoder.from_checkpoint(checkpoint, device, fallback=fallback)
    by_section: dict[int, list[str]] = {section: [] for section in range(encoder.sections)}
    for name in encoder.tensors:
        by_section[encoder.find_section(name)].append(name)
    comparable = [model for model in cached_models if model.encoder.architecture == encoder.architecture]
    tower_tensors, sections = dict(encoder.tensors), []
    for section, names in by_section.items():
        equal_model = next(
            (model for model in comparable if _are_equal(model.encoder.tensors, encoder.tensors, names)), None
        )
        sections.append(next(_section_numbers) if equal_model is None else equal_model.sections[section])
        if equal_model is not None:
            tower_tensors |= {name: equal_model.encoder.tensors[name] for name in names}
    shared_encoder = Encoder(encoder.architecture, tower_tensors, encoder.names)
    return ModelInMemory(dict(tensors), shared_encoder, tuple(sections))


def move_models(models: Iterable[ModelInMemory], device: torch.device) -> None:
    """Move the towers of models to a device; shared tensors remain shared."""
    moved: dict[int, tuple[Tensor, Tensor]] = {}  # {id of the first: (tensor, moved)}; holding it keeps the id unique
    for model in models:
        for tensor in model.encoder.tensors.values():
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor, tensor.to(device)
        tensors = {name: moved[id(tensor)][1] for name, tensor in model.encoder.tensors.items()}
        model.encoder = replace(model.encoder, tensors=tensors)


def _are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor], names: Collection[str]) -> bool:
    """Whether two towers have equal tensors under these names; the device is synchronized once for all of them."""
    if any(name not in first or first[name].shape != second[name].shape for name in names):
        return False
    return bool(torch.stack([(first[name] == second[name]).all() for name in names]).all().cpu())


def merge_in_memory(
    opened: OpenedRecipe,
    context: Context,
    make_inputs: Callable[[], LayerInputSource | None] = lambda: None,
    similar: tuple[Mapping[str, ModelInMemory], Collection[str]] | None = None,
) -> dict[str, dict[str, Tensor]]:
    """The merged state dicts by "merged" or expert, in the shapes and dtypes of the pretrained model.

    ``similar`` are models of the same names, and the names of the only tensors in which the results can differ from
    them. ``make_inputs`` returns layer inputs; it is called only if tensors have to be merged.

    Raises:
        CheckpointError: a file was changed while it was read.
    """
    base = opened.pretrained
    if similar is None:
        result = _run_engine(opened, context, make_inputs())
    else:
        models, changed = similar
        reset_names = find_pretrained_tensors(opened.recipe, base.parameters) & set(changed)
        remerged_names = set(changed) - reset_names
        reset_tensors = {name: base.read(name) for name in reset_names}
        result = {name: {**model.tensors, **reset_tensors} for name, model in models.items()}
        if remerged_names:
            remerged_states = _run_engine(opened, context, make_inputs(), remerged_names)
            result = {
                name: tensors | {key: remerged_states[name][key] for key in remerged_names}
                for name, tensors in result.items()
            }
    opened.raise_if_changed()
    return result


def _run_engine(
    opened: OpenedRecipe, context: Context, layer_inputs: LayerInputSource | None, only: Collection[str] | None = None
) -> dict[str, dict[str, Tensor]]:
    """The engine's state dicts by model; with ``only``, other tensors are not written."""
    inputs = opened.recipe, opened.pretrained, opened.experts
    result = engine.run_recipe(*inputs, layer_inputs=layer_inputs, only=only, context=context.without_progress())
    return result.task_state_dicts or {MERGED: result.state_dict}
