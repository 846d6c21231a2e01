"""Experts of another architecture than the pretrained model: another number of layers or heads, another activation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from merging.base.text import plural
from merging.models.architecture import activation_in_metadata, heads_in_metadata
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import stored_model
from merging.models.inspection.fit_report import Problem, make_problem
from merging.models.tower_names import HF_PREFIX, VISUAL

BLOCK_NUMBER = re.compile(r"(?:^|\.)(?:transformer\.resblocks|encoder\.layers)\.(\d+)\.")


def find_stated_differences(pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> Iterator[Problem]:
    """Problems of experts whose metadata states another activation or number of heads than the pretrained model's.

    If the pretrained model's metadata states none, the others are compared with the first expert that states one. An
    expert that states none is not compared.
    """
    for kind, stated_by in (("activation", activation_in_metadata), ("heads", heads_in_metadata)):
        expected, source = stated_by(pretrained), ""
        for name, expert in experts.items():
            found = stated_by(expert)
            if found and not expected:
                expected, source = found, f", as {name} has"
            elif found and found != expected:
                yield make_problem("error", name, "", kind, f"{expected}{source}", str(found))


def find_layer_differences(
    pretrained: Checkpoint, name: str, expert: Checkpoint
) -> tuple[list[Problem], frozenset[str]]:
    """A problem for each tower of an expert with more or fewer layers, and the tensors of layers in one model only.

    A layer that lacks some of its tensors still counts.
    """
    if pretrained.is_inferred:
        return _find_block_differences(pretrained, name, expert)
    expected, found = visual_block_numbers(pretrained), visual_block_numbers(expert)
    if not expected or not found or len(expected) == len(found):
        return [], frozenset()
    layers = [plural(len(numbers), "layer") for numbers in (expected, found)]
    uneven = (tensor for tensor in (*pretrained.infos, *expert.infos) if block_number(tensor) in expected ^ found)
    return [make_problem("error", name, "", "depth", *layers)], frozenset(uneven)


def _find_block_differences(
    pretrained: Checkpoint, name: str, expert: Checkpoint
) -> tuple[list[Problem], frozenset[str]]:
    problems, uneven = list[Problem](), set[str]()
    ours, theirs = _tensors_of_blocks(pretrained), _tensors_of_blocks(expert)
    for tower, own in ours.items():
        lacking = [names for names in own.values() if names.isdisjoint(expert.infos)]
        more = [names for names in theirs.get(tower, {}).values() if names.isdisjoint(pretrained.infos)]
        if len(lacking) == len(more) or len(lacking) == len(own):
            continue
        in_tower = f" in the {tower}" if tower else ""
        found = plural(len(own) - len(lacking) + len(more), "block")
        problems.append(make_problem("error", name, "", "depth", f"{plural(len(own), 'block')}{in_tower}", found))
        uneven.update(*lacking, *more)
    return problems, frozenset(uneven)


def _tensors_of_blocks(checkpoint: Checkpoint) -> dict[str, dict[int, set[str]]]:
    """{tower: {block: its tensors}} of a network other than CLIP; empty for CLIP."""
    found: dict[str, dict[int, set[str]]] = {}
    for parameter in checkpoint.parameters if checkpoint.is_inferred else ():
        if parameter.block is not None:
            found.setdefault(parameter.tower, {}).setdefault(parameter.block, set()).add(parameter.name)
    return found


def visual_block_numbers(checkpoint: Checkpoint) -> frozenset[int]:
    """The numbers of the visual tower's layers, from the names in the file; those of a text tower do not count."""
    stored = stored_model(checkpoint)
    return frozenset(number for name in select_tower_names(stored.infos) if (number := block_number(name)) is not None)


def select_tower_names(names: Iterable[str]) -> list[str]:
    """The names that contain a visual tower's prefix, or all names if none contains one."""
    listed = list(names)
    marked = [name for name in listed if VISUAL in name or HF_PREFIX in name]
    return marked or listed


def block_number(name: str) -> int | None:
    """The layer that a tensor belongs to; None if it belongs to none."""
    match = BLOCK_NUMBER.search(name)
    return int(match[1]) if match else None
