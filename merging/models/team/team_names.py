"""Data about the tensors in an expert's file, looked up by the names in its team.

In a team, an expert's tensors have the pretrained model's names, which may differ from those in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from merging.models.checkpoint import Checkpoint
from merging.models.team.team import TeamMember

T = TypeVar("T")


class TeamNames(Mapping[str, T]):
    """Data of the tensors in an expert's file, by the pretrained model's names, looked up on demand.

    Data of the task's head is left out, because heads are not merged. Names that are not in the file are unchanged.
    """

    def __init__(self, data: Mapping[str, T], expert: TeamMember) -> None:
        team_names = {stored: name for name, stored in expert.stored.items()}
        # Names in the file that the team does not have under any name.
        heads = set(expert.inner.infos) - set(team_names) - set(expert.infos)
        self._data = data
        self._names = {team_names.get(name, name): name for name in data if name not in heads}

    def __getitem__(self, name: str) -> T:
        return self._data[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def rename_to_team(data: Mapping[str, T], expert: Checkpoint | None) -> Mapping[str, T]:
    """Data of an expert's tensors, by the names in its team; unchanged if the expert is not a ``TeamMember``."""
    return TeamNames(data, expert) if isinstance(expert, TeamMember) else data
