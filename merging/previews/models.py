"""Models in memory that previews compare: merged once, and again only where a recipe changes them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint, MappingCheckpoint
from merging.clip.image_encoder import Encoder
from merging.engine import run as engine
from merging.engine.layer_inputs import Evidence
from merging.engine.outputs import MERGED, MemorySink
from merging.progress import Cancel

if TYPE_CHECKING:
    from merging.runs.inputs import OpenedRecipe

_numbers = itertools.count()  # names of sections in this process


@dataclass(frozen=True, eq=False)
class HeldModel:
    """A model in memory: its stored tensors, and the tower that runs, in float32.

    ``sections`` names the tensors of each section of the tower: the same name, the same tensors.
    """

    tensors: Mapping[str, Tensor]
    encoder: Encoder
    sections: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; those that another model shares count again."""
        towers = [tensor for tensor in self.encoder.tensors.values() if tensor.dtype != torch.float32]
        stored = {tensor.data_ptr(): tensor.nbytes for tensor in (*self.tensors.values(), *towers)}
        return sum((stored | {t.data_ptr(): t.nbytes for t in self.encoder.tensors.values()}).values())


@dataclass(frozen=True, eq=False)
class HeldMerge:
    """The models that a recipe gives: one as "merged", or one for each expert. ``digests`` are those of its inputs."""

    digests: Mapping[str, str]
    models: Mapping[str, HeldModel]
    recipe: Any = field(default=None)  # None: models that no recipe of these checkpoints gave

    @property
    def nbytes(self) -> int:
        """Bytes of all models."""
        return sum(model.nbytes for model in self.models.values())


def held(
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    device: torch.device,
    like: Checkpoint | None,
    known: Iterable[HeldModel],
) -> HeldModel:
    """A state dict as a model; tensors and names of sections that a known model has are shared.

    ``like`` has the architecture of a state dict without metadata.
    """
    checkpoint = MappingCheckpoint(tensors, MERGED)
    checkpoint.metadata = dict(metadata)
    encoder = Encoder.of(checkpoint, device, like=like)
    by_section: dict[int, list[str]] = {section: [] for section in range(encoder.sections)}
    for name in encoder.tensors:
        by_section[encoder.section_of(name)].append(name)
    alike = [model for model in known if model.encoder.architecture == encoder.architecture]
    shared, sections = dict(encoder.tensors), []
    for section, names in by_section.items():
        same = next((model for model in alike if _same(model.encoder.tensors, encoder.tensors, names)), None)
        sections.append(next(_numbers) if same is None else same.sections[section])
        if same is not None:
            shared |= {name: same.encoder.tensors[name] for name in names}
    own = Encoder(encoder.architecture, shared, encoder.names)
    return HeldModel(dict(tensors), own, tuple(sections))


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor], names: Collection[str]) -> bool:
    """Whether two towers have equal tensors under these names."""
    return all(name in one and torch.equal(one[name], other[name]) for name in names)


class _SomeTensors:
    """Takes the written ones of a few chosen tensors."""

    def __init__(self, checkpoint: Checkpoint, only: Collection[str]) -> None:
        chosen = {name: checkpoint.infos[name] for name in only}
        self.state_dict = {name: torch.empty(info.shape, dtype=info.dtype) for name, info in chosen.items()}

    def write(self, name: str, values: Tensor, start: int = 0) -> None:
        """Put ``values`` at flat position ``start``."""
        if name in self.state_dict:
            self.state_dict[name].reshape(-1)[start : start + values.numel()].copy_(values.reshape(-1))


def merged(
    opened: OpenedRecipe,
    device: str,
    cancel: Cancel | None = None,
    layer_inputs: Evidence | None = None,
    near: tuple[Mapping[str, HeldModel], Collection[str]] | None = None,
) -> dict[str, dict[str, Tensor]]:
    """The merged state dicts, by "merged" or by expert, in the pretrained model's dtypes: the engine's own.

    ``near`` are models of the same names, and the only tensors in which these can differ from them.

    Raises:
        CheckpointError: a file was changed while it was read.
    """
    only = None if near is None else near[1]
    sinks: dict[str, Any] = {}

    def make_sink(name: str) -> Any:
        whole = only is None
        sinks[name] = MemorySink(opened.pretrained) if whole else _SomeTensors(opened.pretrained, only or ())
        return sinks[name]

    if only is None or only:
        engine.run(
            opened.recipe,
            opened.pretrained,
            opened.experts,
            layer_inputs=layer_inputs,
            device=device,
            cancel=cancel,
            make_sink=make_sink,
            only=only,
        )
        opened.raise_if_changed()
    if near is None:
        return {name: sink.state_dict for name, sink in sinks.items()}
    return {n: {**model.tensors, **(sinks[n].state_dict if sinks else {})} for n, model in near[0].items()}
