"""The types of options' values: steps of a chain, test data, sizes, paths, architectures, shares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.cli.exit_codes import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


GB = 1_000_000_000


class StepType(click.ParamType[tuple[str, dict[str, Any]]]):
    """One step of a chain, an "edit", a "merge" or an "adapt": ties:density=0.1 becomes ("ties", {"density": 0.1})."""

    name = "spec"

    def __init__(self, role: str) -> None:
        self.role = role

    def convert(
        self, value: str | tuple[str, dict[str, Any]], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, dict[str, Any]]:
        """The method's key and its stated parameters; a default is such a pair already."""
        from merging.recipes.chain_text import parse_step

        if not isinstance(value, str):
            return value
        problems: list[str] = []
        step = parse_step(self.role, value, problems)
        if problems:
            raise UsageError(problems)
        return step

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Keys of methods."""
        from click.shell_completion import CompletionItem

        from merging.methods import registry

        methods = [method for method in registry.list_methods() if method.role == self.role]
        return [
            CompletionItem(method.key, help=method.title) for method in methods if method.key.startswith(incomplete)
        ]


class TestDataType(click.ParamType[dict[str, Any]]):
    """The images that a step learns from without labels: 'reporting:per_task=128' becomes a recipe's settings."""

    __test__ = False  # pytest would collect the class because of its name
    name = "split"

    def convert(
        self, value: str | dict[str, Any], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """The settings; a default is a mapping already."""
        if not isinstance(value, str):
            return value
        from merging.recipes.chain_text import parse_test_data

        problems: list[str] = []
        settings = parse_test_data(value, problems)
        if problems:
            raise UsageError(problems)
        return settings


class GigabytesType(click.ParamType[int]):
    """A size in gigabytes above 0, as a number of bytes."""

    name = "gb"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        try:
            gigabytes = float(value)
        except ValueError:
            gigabytes = 0.0
        if not 0 < gigabytes < float("inf"):
            self.fail(f"a number of gigabytes above 0 is expected, got {value!r}.", param, ctx)
        return round(gigabytes * GB)


class PathType(click.Path):  # generic since click 8.5.1
    """A path that is not checked yet: the commands check it, and report problems in their own sentences."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        return Path(value)


class ArchitectureType(click.ParamType[str]):
    """The architecture of models whose files do not state it, as plain fields: 'heads=12,activation=gelu'."""

    name = "architecture"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The architecture's fields as text, from fields, the name of an open_clip model, or a configuration's path."""
        if not value:
            return ""
        from merging.base.errors import CheckpointError
        from merging.models.formats.named_architecture import named_architecture

        try:
            return named_architecture(value).text()
        except CheckpointError as error:
            raise UsageError([str(error)]) from None


class ShareType(click.ParamType[tuple[int, int]]):
    """A share of a sweep's points: '3/16' is the fourth of sixteen."""

    name = "k/n"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """The share's number, from 0, and the number of shares."""
        if isinstance(value, tuple):
            return value
        number, _, count = value.partition("/")
        if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
            self.fail(f"a share is K/N with K from 0 to N - 1, such as 0/16; got {value[:20]!r}.", param, ctx)
        return int(number), int(count)


PATH = PathType()
SHARE = ShareType()
