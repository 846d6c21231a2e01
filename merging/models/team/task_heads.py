"""Task heads: output layers that are trained for one task. They are not merged; every task has its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from merging.base.text import first_few

HEAD_WORDS = ("classifier", "score", "head", "fc", "qa_outputs", "classification_head", "pre_classifier", "heads")
POOLER = "pooler"  # a layer before a head; it counts as a head if the pretrained model lacks it
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TaskHeads:
    """Names of the heads' tensors: ``per_task``, or ``merged`` like all other tensors."""

    per_task: frozenset[str]
    merged: tuple[str, ...]

    def notes(self, order: Sequence[str]) -> Iterable[str]:
        """Sentences on both groups; ``order`` is the order of the tensors."""
        if self.per_task:
            yield f"{_name_first(n for n in order if n in self.per_task)}: each task keeps its own."
        if self.merged:
            yield f"{_name_first(self.merged)}: merged; every model has it in one shape."


def _name_first(names: Iterable[str]) -> str:
    """The first names, weights before their biases, independent of the order in a file."""
    name_list = list(names)
    layers = [name.rpartition(".")[0] for name in name_list]
    ordered: list[str] = sorted(
        name_list, key=lambda name: (layers.index(name.rpartition(".")[0]), name[-6:] != "weight")
    )
    return first_few(ordered)


def find_heads(
    base_shapes: Shapes, experts: Iterable[Shapes], outer_tensors: Collection[str], words: Sequence[str] = HEAD_WORDS
) -> TaskHeads:
    """The heads among ``outer_tensors``, the tensors outside all blocks: modules called one of ``words``.

    A head belongs to its task as a whole if the pretrained model lacks one of its tensors or has it in another shape.
    """
    shapes = list(experts)
    groups: dict[str, list[str]] = {}
    for name in outer_tensors:
        if group := _find_head(name, (*words, POOLER)):
            groups.setdefault(group, []).append(name)
    per_task: set[str] = set()
    merged: list[str] = []
    for group, names in groups.items():
        expert_shapes = [[expert.get(name) for name in names] for expert in shapes]
        if group.rpartition(".")[2] == POOLER and any(name in base_shapes for name in names):
            continue
        present = [group_shapes for group_shapes in expert_shapes if any(shape is not None for shape in group_shapes)]
        if not present:
            continue  # no expert has it, so the pretrained model's is used
        if all(group_shapes == [base_shapes.get(name) for name in names] for group_shapes in expert_shapes):
            merged += names
        else:
            per_task |= set(names)
    return TaskHeads(frozenset(per_task), tuple(merged))


def _find_head(name: str, words: Sequence[str]) -> str:
    """The head that a tensor belongs to; empty if it belongs to none."""
    parts = name.split(".")
    depth = next((depth for depth, part in enumerate(parts[:-1], start=1) if part in words), 0)
    return ".".join(parts[:depth])
