"""Task heads: output layers that each task trained for itself, which are kept per task and not merged."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from merging.text import first_few

HEADS = ("classifier", "score", "head", "fc", "qa_outputs", "classification_head", "pre_classifier", "heads")
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Heads:
    """The tensors that each task keeps, those of heads that are merged like the rest, both by name."""

    per_task: frozenset[str]
    merged: tuple[str, ...]

    def notes(self, order: Sequence[str]) -> Iterable[str]:
        """Sentences on both."""
        if self.per_task:
            yield f"{first_few(n for n in order if n in self.per_task)}: each task keeps its own."
        if self.merged:
            yield f"{first_few(self.merged)}: merged; every model has it in one shape."


def find(base: Shapes, experts: Iterable[Shapes], outside: Collection[str], patterns: Sequence[str] = ()) -> Heads:
    """The heads among the tensors ``outside`` all blocks: what is called so, or matches a pattern.

    A head is kept per task as a whole: if the pretrained model lacks one of its tensors or has it in another shape.
    """
    shapes = list(experts)
    groups: dict[str, list[str]] = {}
    for name in outside:
        if group := _group(name, patterns):
            groups.setdefault(group, []).append(name)
    per_task: set[str] = set()
    merged: list[str] = []
    for names in groups.values():
        having = [[expert.get(name) for name in names] for expert in shapes]
        present = [found for found in having if any(shape is not None for shape in found)]
        if not present:
            continue  # no expert has it, so that it is the pretrained model's
        if all(found == [base.get(name) for name in names] for found in having):
            merged += names
        else:
            per_task |= set(names)
    return Heads(frozenset(per_task), tuple(merged))


def _group(name: str, patterns: Sequence[str]) -> str:
    """The head that a tensor belongs to; empty if to none."""
    parts = name.split(".")
    at = next((at for at, part in enumerate(parts[:-1]) if part in HEADS), None)
    if at is not None:
        return ".".join(parts[: at + 1])
    if any(re.fullmatch(rf"(?:.+\.)?(?:{pattern})", name) for pattern in patterns):
        return parts[0]
    return ""
