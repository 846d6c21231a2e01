"""Blocks and towers of a network, from the numbers in the names of its tensors.

A number in a dotted name, alone or at the end of a word ("layers.3", "layer3"), belongs to a container: what stands
before it. A container counts depth if its members are alike; experts of a layer, and the unlike parts of a T5 block,
do not count. Every name is gone through once, so that names of strangers cost no more than their length.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

# A component, not the last, that is a number, or a word that ends in one.
NUMBERED = re.compile(r"(?:^|\.)([^\d.]*)(\d{1,6})(?=\.)")
REPEATED = re.compile(r"\b(\w{1,32})\.\1-")  # "block1.block1-0", which is the layer 0 of a stage
MOST_NUMBERS = 6  # of a name that are looked at
LEVELS = 2  # of containers within each other that count: stages, and layers in them
LONE_CONTAINERS = {"layer", "layers", "block", "blocks", "h", "resblocks"}  # containers that count with one member, too
EXPERTS = {"expert", "experts"}
ALIKE = 3  # templates of what follows a number that members must share
LONGEST = 32  # components of a name that are looked at


@dataclass(frozen=True, slots=True)
class Depth:
    """Where a tensor is: its tower ("" if there is one, or if it is in none) and its block, None outside."""

    tower: str
    block: int | None
    rest: str  # what follows the block's number, or the tower's name


Member = tuple[int, ...]  # the numbers of a block, one a level
NumberedComponent = tuple[
    str, int, str, bool
]  # container, member, what follows, whether the component is a number alone


def numbered_components(name: str) -> list[NumberedComponent]:
    """The first numbers in a name, from the left; the last component is no place."""
    if "-" in name:
        name = REPEATED.sub(r"\1.", name)
    found = []
    for match in islice(NUMBERED.finditer(name), MOST_NUMBERS):
        before = name[: match.end(1)].removesuffix(".") if match[1] else name[: match.start()]
        found.append((before, int(match[2]), name[match.end() + 1 :], not match[1]))
    return found


def depth_containers(names: Iterable[str]) -> set[str]:
    """The containers that count depth."""
    return _find_depth_containers(map(numbered_components, names))


def _find_depth_containers(found: Iterable[list[NumberedComponent]]) -> set[str]:
    followed: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for chain in found:
        for container, member, rest, alone in chain:
            if alone or "." in rest:  # "conv2.weight" is one of several layers, not a stage of them
                followed[container][member].add(rest)
    return {container for container, members in followed.items() if _counts_depth(container, members)}


def _counts_depth(container: str, members: Mapping[int, set[str]]) -> bool:
    last = container.rpartition(".")[2]
    if last in EXPERTS:
        return False
    if len(members) == 1:
        return last in LONE_CONTAINERS
    shared = Counter(rest for rests in members.values() for rest in rests)
    return sum(2 * count >= max(len(members), 3) for count in shared.values()) >= ALIKE


def tensor_depths(names: Iterable[str]) -> dict[str, Depth]:
    """{name: where it is}; blocks count from 0 within a tower, stages of layers count through as one."""
    placed = {name: numbered_components(name) for name in names}
    counting = _find_depth_containers(placed.values())
    chains = {
        name: [place for place in found if place[0] in counting][:LEVELS] if found else found
        for name, found in placed.items()
    }
    outermost = sorted({chain[0][0] for chain in chains.values() if chain})
    titles = name_towers(outermost)
    named = set(titles.values()) - {""}
    numbers: dict[str, set[Member]] = defaultdict(set)
    for chain in chains.values():
        if chain:
            numbers[chain[0][0]].add(_member(chain))
    ranks = {tower: _ranks(members) for tower, members in numbers.items()}
    found = {}
    for name, chain in chains.items():
        if chain:
            outer = chain[0][0]
            found[name] = Depth(titles[outer], ranks[outer][_member(chain)], chain[-1][2])
        else:
            tower = next((part for part in name.split(".", LONGEST) if part in named), "") if named else ""
            found[name] = Depth(tower, None, name)
    return found


def _member(chain: list[NumberedComponent]) -> Member:
    return tuple(place[1] for place in chain)


def _ranks(members: set[Member]) -> dict[Member, int]:
    """The block of every member. What a stage has beside its layers, as for a smaller picture, belongs to one of them:

    to the last where the first stage has it, and so hands on to the next; to the first otherwise.
    """
    stages: dict[Member, list[Member]] = defaultdict(list)
    for member in sorted(members):
        if len(member) == LEVELS:
            stages[member[:1]].append(member)
    blocks = [member for member in sorted(members) if member not in stages]
    ranks = {member: rank for rank, member in enumerate(blocks)}
    beside = [stage for stage in stages if stage in members]
    after = bool(beside) and min(stages) in beside and max(stages) not in beside
    return ranks | {stage: ranks[stages[stage][-1 if after else 0]] for stage in beside}


def name_towers(outermost: list[str]) -> dict[str, str]:
    """{container: name of its tower}: the first component in which all paths differ; empty if there is one."""
    if len(outermost) < 2:
        return dict.fromkeys(outermost, "")
    paths = [path.split(".") for path in outermost]
    for at in range(min(map(len, paths))):
        titles = [path[at] for path in paths]
        if len(set(titles)) == len(titles):
            return dict(zip(outermost, titles, strict=True))
    return {path: path for path in outermost}
