"""Data of an expert under the names in its own file, as they are called in its team."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from merging.models.checkpoint import Checkpoint
from merging.models.team.team import TeamMember

T = TypeVar("T")


class TeamNames(Mapping[str, T]):
    """What is given for tensors of an expert's file, by the pretrained model's names; read when it is asked for.

    What is given for the head of its task is left out, as heads are not merged. Names that the file does not have stay.
    """

    def __init__(self, given: Mapping[str, T], expert: TeamMember) -> None:
        here = {stored: name for name, stored in expert.stored.items()}
        heads = set(expert.inner.infos) - set(here) - set(expert.infos)
        self._given = given
        self._names = {here.get(name, name): name for name in given if name not in heads}

    def __getitem__(self, name: str) -> T:
        return self._given[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def rename_to_team(data: Mapping[str, T], expert: Checkpoint | None) -> Mapping[str, T]:
    """What is given for an expert's tensors, by the names of its team; unchanged where files are called alike."""
    return TeamNames(data, expert) if isinstance(expert, TeamMember) else data
