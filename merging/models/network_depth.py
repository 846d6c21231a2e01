"""Blocks and towers of a network, from the numbers in the names of its tensors.

A component of a dotted name that is a number or ends in one ("layers.3", "layer3") names a member of a container. The
container is the part of the name before the number. A container is a sequence of layers, and counts depth, if its
members are alike; experts of a layer and the unlike parts of a T5 block do not count depth. Every name is scanned once,
so the time for untrusted names is proportional to their length.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

# A component, not the last, that is a number, or a word that ends in one.
NUMBERED_COMPONENT = re.compile(r"(?:^|\.)([^\d.]*)(\d{1,6})(?=\.)")
REPEATED_COMPONENT = re.compile(r"\b(\w{1,32})\.\1-")  # "block1.block1-0", which is the layer 0 of a stage
MAX_NUMBERS = 6  # of a name that are read
MAX_LEVELS = 2  # nested containers that count depth: stages, and the layers in them
LONE_CONTAINERS = {
    "layer",
    "layers",
    "block",
    "blocks",
    "h",
    "resblocks",
}  # containers that count depth even with one member
EXPERT_CONTAINERS = {"expert", "experts"}
MIN_SHARED_ENDINGS = 3  # endings after the number that the members must have in common
MAX_COMPONENTS = 32  # of a name that are read to find its tower


@dataclass(frozen=True, slots=True)
class Depth:
    """The position of a tensor in a network.

    ``tower`` is empty if the network has a single tower or the tensor is outside all towers. ``block`` is None outside
    the blocks.
    """

    tower: str
    block: int | None
    name_in_block: str  # the part of the name after the block's number; outside the blocks the whole name


Member = tuple[int, ...]  # the numbers of a block, one per level
# (container, number of the member, name after the number, whether the component is only the number)
NumberedComponent = tuple[str, int, str, bool]


def numbered_components(name: str) -> list[NumberedComponent]:
    """The first numbered components of a name, without its last component."""
    if "-" in name:
        name = REPEATED_COMPONENT.sub(r"\1.", name)
    components = []
    for match in islice(NUMBERED_COMPONENT.finditer(name), MAX_NUMBERS):
        container = name[: match.end(1)].removesuffix(".") if match[1] else name[: match.start()]
        components.append((container, int(match[2]), name[match.end() + 1 :], not match[1]))
    return components


def depth_containers(names: Iterable[str]) -> set[str]:
    """The containers that count depth."""
    return _find_depth_containers(map(numbered_components, names))


def _find_depth_containers(chains: Iterable[list[NumberedComponent]]) -> set[str]:
    endings: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for chain in chains:
        for container, member, ending, alone in chain:
            if alone or "." in ending:  # "conv2.weight" is one of several layers, not a stage of them
                endings[container][member].add(ending)
    return {container for container, members in endings.items() if _counts_depth(container, members)}


def _counts_depth(container: str, members: Mapping[int, set[str]]) -> bool:
    last_component = container.rpartition(".")[2]
    if last_component in EXPERT_CONTAINERS:
        return False
    if len(members) == 1:
        return last_component in LONE_CONTAINERS
    # An ending is shared if at least half of the members have it, and at least two.
    shared = Counter(ending for endings in members.values() for ending in endings)
    return sum(2 * count >= max(len(members), 3) for count in shared.values()) >= MIN_SHARED_ENDINGS


def tensor_depths(names: Iterable[str]) -> dict[str, Depth]:
    """{name: tower and block}; blocks are counted from 0 within a tower, over all of its stages."""
    components = {name: numbered_components(name) for name in names}
    containers = _find_depth_containers(components.values())
    chains = {
        name: [component for component in depths if component[0] in containers][:MAX_LEVELS] if depths else depths
        for name, depths in components.items()
    }
    outermost = sorted({chain[0][0] for chain in chains.values() if chain})
    titles = name_towers(outermost)
    named = set(titles.values()) - {""}
    numbers: dict[str, set[Member]] = defaultdict(set)
    for chain in chains.values():
        if chain:
            numbers[chain[0][0]].add(_member_numbers(chain))
    ranks = {tower: _rank_members(members) for tower, members in numbers.items()}
    depths = {}
    for name, chain in chains.items():
        if chain:
            outer = chain[0][0]
            depths[name] = Depth(titles[outer], ranks[outer][_member_numbers(chain)], chain[-1][2])
        else:
            tower = next((part for part in name.split(".", MAX_COMPONENTS) if part in named), "") if named else ""
            depths[name] = Depth(tower, None, name)
    return depths


def _member_numbers(chain: list[NumberedComponent]) -> Member:
    return tuple(number for _, number, _, _ in chain)


def _rank_members(members: set[Member]) -> dict[Member, int]:
    """The block of every member.

    A stage may have tensors beside its layers, such as those that shrink the image. They belong to the last layer of
    the stage if the first stage has such tensors and the last stage does not, else to the first layer of the stage.
    """
    stages: dict[Member, list[Member]] = defaultdict(list)
    for member in sorted(members):
        if len(member) == MAX_LEVELS:
            stages[member[:1]].append(member)
    blocks = [member for member in sorted(members) if member not in stages]
    ranks = {member: rank for rank, member in enumerate(blocks)}
    stages_with_tensors = [stage for stage in stages if stage in members]  # stages with tensors of their own
    joins_last_layer = (
        bool(stages_with_tensors) and min(stages) in stages_with_tensors and max(stages) not in stages_with_tensors
    )
    return ranks | {stage: ranks[stages[stage][-1 if joins_last_layer else 0]] for stage in stages_with_tensors}


def name_towers(outermost: list[str]) -> dict[str, str]:
    """{container: name of its tower}: the first component in which all containers differ; empty for a single one."""
    if len(outermost) < 2:
        return dict.fromkeys(outermost, "")
    paths = [path.split(".") for path in outermost]
    for index in range(min(map(len, paths))):
        titles = [path[index] for path in paths]
        if len(set(titles)) == len(titles):
            return dict(zip(outermost, titles, strict=True))
    return {path: path for path in outermost}
