"""The text that chooses workers, and its parts: ``SPEC [only=MACHINE,MACHINE] [mixed]``."""

from __future__ import annotations

import re
from typing import NamedTuple

CHOICE_PATTERN = re.compile(r"(?P<spec>.*?)(?:\s+only=(?P<only>\S+))?(?P<mixed>\s+mixed)?", re.DOTALL)


class WorkerChoice(NamedTuple):
    """Chosen workers: ``spec``, which ``workers.pools`` reads, ``only`` these machines, ``mixed`` kinds of hardware."""

    spec: str
    only: tuple[str, ...] = ()
    mixed: bool = False

    @property
    def text(self) -> str:
        """The text that ``parse_choice`` reads."""
        only = f" only={','.join(self.only)}" if self.only else ""
        return f"{self.spec}{only}{' mixed' * self.mixed}"


def parse_choice(text: str) -> WorkerChoice:
    """The parts of a text, which are not checked."""
    found = CHOICE_PATTERN.fullmatch(text.strip())
    assert found is not None  # every text matches
    names = tuple(name.strip() for name in (found["only"] or "").split(",") if name.strip())
    return WorkerChoice(found["spec"].strip(), names, found["mixed"] is not None)
