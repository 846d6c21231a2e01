"""What people and programs rely on, as texts: the public API, the command line, recipes, pages, the library's files.

``python tests/support/frozen_words.py`` writes tests/architecture/frozen anew. That is right only where a change is
meant: a new command, parameter, preset, page or key of the address, or a library that was computed again.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "architecture" / "frozen"
WIDTH = 100


def api() -> Iterator[str]:
    """Every public name with its signature, and the public attributes of classes."""
    import merging

    for name in sorted(merging.__all__):
        value = getattr(merging, name)
        signature = str(inspect.signature(value)) if callable(value) else ""
        yield name + re.sub(" at 0x[0-9a-f]+", "", signature)  # the addresses of default functions
        if inspect.isclass(value):
            members = [member for member in vars(value) if not member.startswith("_")]
            members += [field for field in getattr(value, "__dataclass_fields__", ()) if not field.startswith("_")]
            yield from (f"    {member}" for member in sorted(set(members)))


def commands() -> Iterator[str]:
    """The help of every command, and the exit codes."""
    from merging.cli import exit_codes
    from merging.cli.main import PROGRAM, program

    yield from (f"{name} = {getattr(exit_codes, name)}" for name in ("DONE", "FAILED", "USAGE", "PAUSED", "CANCELLED"))
    yield from _help(click.Context(program, info_name=PROGRAM, terminal_width=WIDTH, **program.context_settings))


def _help(context: click.Context) -> Iterator[str]:
    yield from ("", *context.command.get_help(context).split("\n"))
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from _help(click.Context(command, context, info_name=name, terminal_width=WIDTH))


def recipes() -> Iterator[str]:
    """Every preset on two experts: its steps in words, and a digest of its recipe file."""
    from merging.recipes.presets import NETWORK_PRESETS, PRESETS, list_partners

    for one in (*PRESETS, *list_partners(), *NETWORK_PRESETS):
        recipe = one.recipe("base", {"a": "one", "b": "two"})
        yield f"{one.key}: {recipe.text()} {hashlib.sha256(recipe.to_yaml().encode()).hexdigest()[:16]}"


def pages() -> Iterator[str]:
    """Every page with its title, and the table of the address, * where a widget is bound to the parameter."""
    from app_places import constants

    from app.session.address import ADDRESS

    for section, entries in constants(ROOT / "app" / "main.py")["SECTIONS"].items():  # type: ignore[attr-defined]
        yield from (section, *(f"    {entry}" for entry in entries))
    yield from (f"{one.key}{'*' * one.bound}: {one.pages}. {one.meaning}" for one in ADDRESS)


def library() -> Iterator[str]:
    """A digest of the files of every run, measurement, point and sweep of the library."""
    for kind in ("runs", "measured", "points", "sweeps"):
        for entry in sorted((ROOT / "sample_data" / kind).iterdir()):
            digest = hashlib.sha256()
            for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
                if path.is_file():
                    digest.update(f"{path.relative_to(entry).as_posix()}\0".encode() + path.read_bytes())
            yield f"{kind}/{entry.name} {digest.hexdigest()[:16]}"


FROZEN: dict[str, Callable[[], Iterator[str]]] = {
    "api": api, "commands": commands, "recipes": recipes, "pages": pages, "library": library,
}  # fmt: skip


def written(name: str) -> list[str]:
    """The lines that are frozen."""
    return (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    FOLDER.mkdir(exist_ok=True)
    for key, lines in FROZEN.items():
        (FOLDER / f"{key}.txt").write_text("".join(f"{line.rstrip()}\n" for line in lines()), "utf-8")
