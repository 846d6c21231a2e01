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
MOST_NUMBERS = 6  # of a name that are looked at
ALONE = {"layer", "layers", "block", "blocks", "h", "resblocks"}  # containers that count with one member, too
EXPERTS = {"expert", "experts"}
ALIKE = 3  # templates of what follows a number that members must share
LONGEST = 32  # components of a name that are looked at


@dataclass(frozen=True, slots=True)
class Depth:
    """Where a tensor is: its tower ("" if there is one, or if it is in none) and its block, None outside."""

    tower: str
    block: int | None
    rest: str  # what follows the block's number, or the tower's name


Place = tuple[str, int, str, bool]  # container, member, what follows, whether the component is a number alone


def places(name: str) -> list[Place]:
    """The first numbers in a name, from the left; the last component is no place."""
    found = []
    for match in islice(NUMBERED.finditer(name), MOST_NUMBERS):
        before = name[: match.end(1)].removesuffix(".") if match[1] else name[: match.start()]
        found.append((before, int(match[2]), name[match.end() + 1 :], not match[1]))
    return found


def containers(names: Iterable[str]) -> set[str]:
    """The containers that count depth."""
    followed: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        for container, member, rest, alone in places(name):
            if alone or "." in rest:  # "conv2.weight" is one of several layers, not a stage of them
                followed[container][member].add(rest)
    return {container for container, members in followed.items() if _counts(container, members)}


def _counts(container: str, members: Mapping[int, set[str]]) -> bool:
    last = container.rpartition(".")[2]
    if last in EXPERTS:
        return False
    if len(members) == 1:
        return last in ALONE
    shared = Counter(rest for rests in members.values() for rest in rests)
    return sum(2 * count >= max(len(members), 3) for count in shared.values()) >= ALIKE


def depths(names: Iterable[str]) -> dict[str, Depth]:
    """{name: where it is}; blocks count from 0 within a tower, stages of layers count through as one."""
    listed = list(names)
    counting = containers(listed)
    chains = {name: [place for place in places(name) if place[0] in counting] for name in listed}
    outermost = sorted({chain[0][0] for chain in chains.values() if chain})
    titles = tower_names(outermost)
    named = set(titles.values()) - {""}
    numbers: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for chain in chains.values():
        if chain:
            numbers[chain[0][0]].add(tuple(member for _, member, _, _ in chain))
    ranks = {tower: {place: rank for rank, place in enumerate(sorted(found))} for tower, found in numbers.items()}
    found = {}
    for name, chain in chains.items():
        if chain:
            outer, numbered = chain[0][0], tuple(member for _, member, _, _ in chain)
            found[name] = Depth(titles[outer], ranks[outer][numbered], chain[-1][2])
        else:
            tower = next((part for part in name.split(".", LONGEST) if part in named), "")
            found[name] = Depth(tower, None, name)
    return found


def tower_names(outermost: list[str]) -> dict[str, str]:
    """{container: name of its tower}: the first component in which all paths differ; empty if there is one."""
    if len(outermost) < 2:
        return dict.fromkeys(outermost, "")
    paths = [path.split(".") for path in outermost]
    for at in range(min(map(len, paths))):
        titles = [path[at] for path in paths]
        if len(set(titles)) == len(titles):
            return dict(zip(outermost, titles, strict=True))
    return {path: path for path in outermost}
