"""Amounts of time and memory, in the notation of job schedulers."""

from __future__ import annotations

import re

import click

UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
TIME_PATTERN = re.compile(r"(?:\d+[dhms])+")
SIZE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT]i?B?)", re.IGNORECASE)
UNIT_POWERS = {"m": 2, "g": 3, "t": 4}


class LifetimeType(click.ParamType[int]):
    """A time in seconds, written as 7h50m."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of seconds."""
        if isinstance(value, int):
            return value
        if not TIME_PATTERN.fullmatch(value):
            self.fail(f"a time is written as 7h50m, 30m or 90s; got {value[:20]!r}.", param, ctx)
        return sum(int(number) * UNIT_SECONDS[unit] for number, unit in re.findall(r"(\d+)([dhms])", value))


class MemoryType(click.ParamType[int]):
    """Memory in bytes, written as 15GB or 14GiB."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        if isinstance(value, int):
            return value
        if (match := SIZE_PATTERN.fullmatch(value.strip())) is None:
            self.fail(f"memory is written as 15GB, 14GiB or 500MB; got {value[:20]!r}.", param, ctx)
        number, unit = match.groups()
        return int(float(number) * (1024 if "i" in unit.lower() else 1000) ** UNIT_POWERS[unit[0].lower()])


LIFETIME, MEMORY = LifetimeType(), MemoryType()
