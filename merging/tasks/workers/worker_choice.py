"""The text that chooses workers, and its parts: ``SPEC [only=MACHINE,MACHINE] [mixed]``."""

from __future__ import annotations

import re
from typing import NamedTuple

CHOICE_PATTERN = re.compile(r"(?P<spec>.*?)(?:\s+only=(?P<only>\S+))?(?P<mixed>\s+mixed)?", re.DOTALL)


class WorkerChoice(NamedTuple):
    """A choice of workers.

    ``spec`` is the text that ``workers.pools`` reads, ``only`` are the machines to use (empty: all), and ``mixed``
    allows several kinds of hardware.
    """

    spec: str
    only: tuple[str, ...] = ()
    mixed: bool = False

    @property
    def text(self) -> str:
        """The text that ``parse_choice`` reads."""
        only = f" only={','.join(self.only)}" if self.only else ""
        return f"{self.spec}{only}{' mixed' * self.mixed}"


def parse_choice(text: str) -> WorkerChoice:
    """The parts of a text, without checking them."""
    match = CHOICE_PATTERN.fullmatch(text.strip())
    assert match is not None  # every text matches
    names = tuple(name.strip() for name in (match["only"] or "").split(",") if name.strip())
    return WorkerChoice(match["spec"].strip(), names, match["mixed"] is not None)
