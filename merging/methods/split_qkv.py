"""Attention's query, key and value as three tensors, for methods whose result depends on what counts as one tensor.

OpenCLIP's checkpoints store the three in one packed tensor, one third of its rows each; Transformers' files store three
tensors. If a method's parameter ``split_qkv`` is on, the method and its survey see each third as a slot with its own
name, and the results for the thirds are joined again. The method itself contains no code for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from merging.methods.method import Edit, Merge
from merging.methods.slot import ResultBeforeCount, Slot, SlotStream
from merging.models.families import Parameter, qkv_parameters

if TYPE_CHECKING:
    from torch import Tensor

    from merging.methods.learning import Blend, Masks, SlotUpdate
    from merging.methods.method import RunBeforeCount
    from merging.methods.params import Params
    from merging.models.tensor_info import TensorInfo

T = TypeVar("T")
SPLIT_QKV = "split_qkv"  # the name of the parameter


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A packed tensor: the parameters of query, key and value, each with ``numel`` scalars."""

    parts: tuple[Parameter, ...]
    numel: int

    def find_thirds(self, slot: Slot) -> list[tuple[int, slice]]:
        """The thirds that a slot overlaps, as (index of the third, rows of the slot).

        The slot is the whole tensor or a flat piece of it; the rows of a flat piece are scalars.
        """
        height = slot.pretrained.shape[0] // len(self.parts) if slot.pretrained.dim() > 1 else self.numel
        spans = [(i * height - slot.start, (i + 1) * height - slot.start) for i in range(len(self.parts))]
        overlaps = [(max(first, 0), min(stop, len(slot.pretrained))) for first, stop in spans]
        return [(i, slice(first, stop)) for i, (first, stop) in enumerate(overlaps) if first < stop]

    def split_slot(self, slot: Slot) -> list[Slot]:
        """The thirds of a slot, each as its own slot; the slot is the whole tensor or a flat piece of it."""
        return [self._build_third(slot, i, rows) for i, rows in self.find_thirds(slot)]

    def _build_third(self, slot: Slot, i: int, rows: slice) -> Slot:
        """The slot of third ``i`` of the packed tensor, which has these rows of ``slot``."""
        third, count = self.parts[i], len(self.parts)

        def add_table_row(table: str, **row: Any) -> None:
            slot.note(table, **{"tensor": third.name, "part": third.part, "numel": self.numel, **row})

        return replace(
            slot,
            parameter=third,
            pretrained=slot.pretrained[rows],
            task_vectors=slot.task_vectors[:, rows],
            start=slot.start + rows.start - i * self.numel if slot.pretrained.dim() == 1 else 0,
            report_share=lambda share: slot.report_share((i + share) / count),
            note=add_table_row,
            gradients={kind: values[:, rows] for kind, values in slot.gradients.items()},
            factors=None if slot.factors is None else tuple(factor.select_rows(rows) for factor in slot.factors),
        )


PackedTensors = Mapping[str, PackedTensor]  # by name


def is_split(params: Params) -> bool:
    """Whether these parameters make query, key and value count as three tensors."""
    return bool(params.effective_values().get(SPLIT_QKV))


def find_packed_tensors(parameters: Sequence[Parameter], infos: Mapping[str, TensorInfo]) -> dict[str, PackedTensor]:
    """The packed tensors of a model, by name, without empty tensors and those whose rows three does not divide."""
    packed = {}
    for parameter in parameters:
        parts, info = qkv_parameters(parameter), infos[parameter.name]
        if parts and info.numel and info.shape[0] % len(parts) == 0:
            packed[parameter.name] = PackedTensor(parts, info.numel // len(parts))
    return packed


def split_method(method: Edit | Merge, params: Params, packed: PackedTensors) -> Edit | Merge:
    """The method applied to the thirds of packed tensors; the method itself if its parameters do not split them."""
    if not is_split(params) or not packed:
        return method

    def run(slot: Slot, params: Any, statistics: Any) -> Tensor:
        if slot.name not in packed:
            return method.run(slot, params, statistics)
        slots = packed[slot.name].split_slot(slot)
        results = [method.run(third, params, statistics) for third in slots]
        return torch.cat(results, dim=results[0].dim() - slot.pretrained.dim())  # 1 for (K, *S), 0 for (*S)

    learn, survey = method.learn, method.survey
    changes: dict[str, Any] = {"run": run}
    if survey is not None:
        changes["survey"] = lambda slots, params: survey(SplitStream(slots, packed), params)
    if learn is not None:
        changes["learn"] = lambda blend, params: learn(SplitBlend(blend, packed), params)
    if isinstance(method, Merge) and method.run_before_count is not None:
        changes["run_before_count"] = _split_run_before_count(method.run_before_count, packed)
    if isinstance(method, Edit):
        changes |= {"kept": _split_kept(method, packed), "drops": _split_drops(method, packed)}
    return replace(method, **changes)


def _split_run_before_count(whole: RunBeforeCount, packed: PackedTensors) -> RunBeforeCount:
    """The function ``run_before_count`` of a merge, applied to the thirds of packed tensors.

    It merges a slot before a count over the whole model, such as the votes of TIES, is complete. The count of the whole
    slot is the sum of its thirds' counts; it is final if no total can change the result of any third.
    """

    def run_before_count(slot: Slot, params: Any, statistics: Any) -> ResultBeforeCount:
        if slot.name not in packed:
            return whole(slot, params, statistics)
        parts = [whole(third, params, statistics) for third in packed[slot.name].split_slot(slot)]
        final = torch.stack([part.final for part in parts]).all()
        return ResultBeforeCount(
            torch.cat([part.change for part in parts]), torch.stack([part.count for part in parts]).sum(), final
        )

    return run_before_count


def _split_kept(method: Edit, packed: PackedTensors) -> Callable[[Slot, Any, Any], Tensor | None]:
    """The function ``kept`` of an edit, applied to the thirds of packed tensors."""

    def kept(slot: Slot, params: Any, statistics: Any) -> Tensor | None:
        if slot.name not in packed:
            return method.kept(slot, params, statistics)
        slots = packed[slot.name].split_slot(slot)
        masks = [method.kept(third, params, statistics) for third in slots]
        if all(mask is None for mask in masks):
            return None
        return torch.cat(
            [
                torch.ones_like(third.pretrained, dtype=torch.bool) if mask is None else mask
                for third, mask in zip(slots, masks, strict=True)
            ]
        )

    return kept


def _split_drops(method: Edit, packed: PackedTensors) -> Callable[[Parameter, Any], bool]:
    """The function ``drops`` of an edit: a packed tensor is dropped if all its thirds are."""

    def drops(parameter: Parameter, statistics: Any) -> bool:
        parts = packed[parameter.name].parts if parameter.name in packed else (parameter,)
        return all(method.drops(part, statistics) for part in parts)

    return drops


def _split_parameters(parameters: Sequence[Parameter], packed: PackedTensors) -> tuple[Parameter, ...]:
    """The parameters with every packed tensor replaced by its thirds."""
    split = (packed[p.name].parts if p.name in packed else (p,) for p in parameters)
    return tuple(part for parts in split for part in parts)


@dataclass(frozen=True)
class SplitStream:
    """A stream for surveys in which every packed tensor is three slots; samples of scalars stay unsplit."""

    whole: SlotStream
    packed: PackedTensors

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the experts, in order."""
        return self.whole.experts

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that are merged, in forward order."""
        return _split_parameters(self.whole.parameters, self.packed)

    @property
    def numels(self) -> tuple[int, ...]:
        """Scalars per tensor."""
        pairs = zip(self.whole.parameters, self.whole.numels, strict=True)
        numels = {parameter.name: numel for parameter, numel in pairs}
        numels |= {part.name: packed.numel for packed in self.packed.values() for part in packed.parts}
        return tuple(numels[parameter.name] for parameter in self.parameters)

    @property
    def numel(self) -> int:
        """Scalars per expert, over all tensors."""
        return self.whole.numel

    @property
    def dead_numel(self) -> int:
        """Scalars of an unused text tower that count in global quantiles."""
        return self.whole.dead_numel

    @property
    def dead_tensors(self) -> int:
        """Tensors of an unused text tower that count in global quantiles; none of them is packed."""
        return self.whole.dead_tensors

    def __iter__(self) -> Iterator[Slot]:
        for slot in self.whole:
            yield from self._split(slot)

    def map(self, work: Callable[[Slot], T]) -> Iterator[T]:
        """The results of a function on every slot, in order; the thirds of a tensor are processed one by one."""
        for results in self.whole.map(lambda slot: [work(third) for third in self._split(slot)]):
            yield from results

    def sample_slots(self, stride: int) -> Iterator[Slot]:
        """One in ``stride`` scalars of each expert, counted over all tensors, as flat slots."""
        return self.whole.sample_slots(stride)

    def _split(self, slot: Slot) -> list[Slot]:
        return self.packed[slot.name].split_slot(slot) if slot.name in self.packed else [slot]


@dataclass(frozen=True)
class SplitBlend:
    """A blend in which every packed tensor is three slots, for methods that learn something for every tensor."""

    whole: Blend
    packed: PackedTensors

    @property
    def slots(self) -> SlotStream:
        """All tensors with the task vectors as the edits leave them."""
        return SplitStream(self.whole.slots, self.packed)

    @property
    def live_parameters(self) -> tuple[Parameter, ...]:
        """The tensors on which the method learns, in forward order."""
        return _split_parameters(self.whole.live_parameters, self.packed)

    def update_tensors(self, update: SlotUpdate, expert: str | None = None) -> None:
        """Call ``update`` once for every live tensor. See ``Blend.update_tensors``."""

        def update_thirds(slot: Slot, gradient: Tensor | None) -> Tensor | None:
            if slot.name not in self.packed:
                return update(slot, gradient)
            packed = self.packed[slot.name]
            gradients = [None if gradient is None else gradient[rows] for _, rows in packed.find_thirds(slot)]
            results = [update(third, part) for third, part in zip(packed.split_slot(slot), gradients, strict=True)]
            vectors = [vector for vector in results if vector is not None]
            return torch.cat(vectors) if len(vectors) == len(results) else None

        self.whole.update_tensors(update_thirds, expert)

    def compute_entropies(self, seed: int, batch: int, step: int) -> tuple[float, ...]:
        """Every task's mean entropy (nats) over its batch of this step. See ``Blend.compute_entropies``."""
        return self.whole.compute_entropies(seed, batch, step)

    def compute_cross_entropy(self, expert: str) -> float:
        """The mean cross-entropy (nats) over all labeled exemplars. See ``Blend.compute_cross_entropy``."""
        return self.whole.compute_cross_entropy(expert)

    def create_masks(self) -> Masks:
        """An empty store for every expert's masks, over whole tensors."""
        return self.whole.create_masks()

    def report_detail(self, detail: str) -> None:
        """Set the text that the progress shows."""
        self.whole.report_detail(detail)

    def load_state(self) -> dict[str, Tensor]:
        """The state that an interrupted run of the same recipe stored: tensors of any shape, by name; else empty."""
        return self.whole.load_state()

    def skip_share(self, share: float) -> None:
        """Count this share of all steps as done."""
        self.whole.skip_share(share)

    def offer_state(self, state: Callable[[], Mapping[str, Tensor]]) -> None:
        """Offer the state, tensors of any shape by name, from which a later run can continue."""
        self.whole.offer_state(state)
