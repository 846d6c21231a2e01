"""Problems of experts whose number of layers or heads, or whose activation, differs from the pretrained model's."""

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

    If the pretrained model's metadata does not state a value, the experts are compared with the first expert that
    states it. An expert that does not state a value is not compared.
    """
    for kind, read_metadata in (("activation", activation_in_metadata), ("heads", heads_in_metadata)):
        expected, source = read_metadata(pretrained), ""
        for name, expert in experts.items():
            actual = read_metadata(expert)
            if actual and not expected:
                expected, source = actual, f", as {name} has"
            elif actual and actual != expected:
                yield make_problem("error", name, "", kind, f"{expected}{source}", str(actual))


def find_layer_differences(
    pretrained: Checkpoint, name: str, expert: Checkpoint
) -> tuple[list[Problem], frozenset[str]]:
    """A problem for each tower of an expert with more or fewer layers, and the tensors of layers in one model only.

    A layer that lacks only some of its tensors still counts.
    """
    if pretrained.is_inferred:
        return _find_block_differences(pretrained, name, expert)
    pretrained_blocks, expert_blocks = visual_block_numbers(pretrained), visual_block_numbers(expert)
    if not pretrained_blocks or not expert_blocks or len(pretrained_blocks) == len(expert_blocks):
        return [], frozenset()
    layers = [plural(len(numbers), "layer") for numbers in (pretrained_blocks, expert_blocks)]
    uneven = (
        tensor
        for tensor in (*pretrained.infos, *expert.infos)
        if block_number(tensor) in pretrained_blocks ^ expert_blocks
    )
    return [make_problem("error", name, "", "depth", *layers)], frozenset(uneven)


def _find_block_differences(
    pretrained: Checkpoint, name: str, expert: Checkpoint
) -> tuple[list[Problem], frozenset[str]]:
    problems, uneven = list[Problem](), set[str]()
    pretrained_towers, expert_towers = _tensors_of_blocks(pretrained), _tensors_of_blocks(expert)
    for tower, blocks in pretrained_towers.items():
        missing_blocks = [names for names in blocks.values() if names.isdisjoint(expert.infos)]
        extra_blocks = [names for names in expert_towers.get(tower, {}).values() if names.isdisjoint(pretrained.infos)]
        if len(missing_blocks) == len(extra_blocks) or len(missing_blocks) == len(blocks):
            continue
        in_tower = f" in the {tower}" if tower else ""
        block_count = plural(len(blocks) - len(missing_blocks) + len(extra_blocks), "block")
        problems.append(
            make_problem("error", name, "", "depth", f"{plural(len(blocks), 'block')}{in_tower}", block_count)
        )
        uneven.update(*missing_blocks, *extra_blocks)
    return problems, frozenset(uneven)


def _tensors_of_blocks(checkpoint: Checkpoint) -> dict[str, dict[int, set[str]]]:
    """{tower: {block: its tensors}} of a network other than CLIP; empty for CLIP."""
    towers: dict[str, dict[int, set[str]]] = {}
    for parameter in checkpoint.parameters if checkpoint.is_inferred else ():
        if parameter.block is not None:
            towers.setdefault(parameter.tower, {}).setdefault(parameter.block, set()).add(parameter.name)
    return towers


def visual_block_numbers(checkpoint: Checkpoint) -> frozenset[int]:
    """The numbers of the visual tower's layers, from the names in the file; those of a text tower do not count."""
    stored = stored_model(checkpoint)
    return frozenset(number for name in select_tower_names(stored.infos) if (number := block_number(name)) is not None)


def select_tower_names(names: Iterable[str]) -> list[str]:
    """The names that contain a visual tower's prefix, or all names if none contains one."""
    name_list = list(names)
    visual_names = [name for name in name_list if VISUAL in name or HF_PREFIX in name]
    return visual_names or name_list


def block_number(name: str) -> int | None:
    """The layer that a tensor belongs to; None if it belongs to none."""
    match = BLOCK_NUMBER.search(name)
    return int(match[1]) if match else None
