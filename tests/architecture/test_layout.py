"""The rules of the house that import-linter cannot hold: sizes, sentences, names. Nothing here starts torch."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("merging", "viz", "app")
MOST_FILES, MOST_LINES, LONGEST_FUNCTION = 12, 350, 60
ONE_FILE_A_METHOD = {"merging/methods/edits", "merging/methods/merges"}
FACES = {"merging", "merging/export", "viz", "viz/report"}  # folders whose __init__.py hands names on
DOTTED = re.compile(r"(?:merging|viz|app)(?:\.\w+)+(?::\w+)?")
PUBLIC_API = {("merging/__init__.py", "merge")}  # its arguments and errors are described in one place


def files(*tops: str) -> list[Path]:
    return sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def folders(*tops: str) -> list[str]:
    return sorted({place(path.parent) for path in files(*tops)})


@pytest.mark.parametrize("folder", folders(*ROOMS))
def test_a_folder_holds_few_files_and_says_its_duty(folder: str) -> None:
    here = ROOT / folder
    count = len([path for path in here.glob("*.py") if path.name != "__init__.py"])
    assert count <= MOST_FILES or folder in ONE_FILE_A_METHOD, f"{folder} holds {count} files"
    face = parsed(here / "__init__.py")
    sentence = ast.get_docstring(face)
    assert sentence and sentence.split("\n")[0].endswith((".", "!")), f"{folder}/__init__.py says no sentence"
    if folder not in FACES:
        assert len(face.body) == 1, f"{folder}/__init__.py holds more than its sentence"


@pytest.mark.parametrize("path", files(*ROOMS, "tests"), ids=place)
def test_files_and_functions_can_be_held_in_the_head(path: Path) -> None:
    count = len(path.read_text("utf-8").splitlines())
    assert count <= MOST_LINES, f"{place(path)} has {count} lines"
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef) and (place(path), node.name) not in PUBLIC_API:
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{place(path)}: {node.name} has {lines} lines"


def test_a_class_name_is_used_once_in_merging() -> None:
    classes = [node.name for path in files("merging") for node in parsed(path).body if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(classes).items() if count > 1] == []


@pytest.mark.parametrize("path", files(*ROOMS, "tests", "sample_data"), ids=place)
def test_no_private_name_crosses_a_file(path: Path) -> None:
    modules = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] in ROOMS):
            private = [alias.name for alias in node.names if is_private(alias.name)]
            assert not private, f"{place(path)} imports {', '.join(private)} of {node.module}"
            modules |= {alias.asname or alias.name for alias in node.names if is_module(node.module or "", alias.name)}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert not is_private(node.attr), f"{place(path)} uses {node.value.id}.{node.attr}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            private = [part for part in re.split("[.:]", node.value) if is_private(part)]
            assert not private, f"{place(path)} names {node.value!r}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_module(package: str, name: str) -> bool:
    return (ROOT / package.replace(".", "/") / f"{name}.py").is_file()


def dotted_strings() -> list[tuple[str, str]]:
    """(file, string) for every string in the program that names a module of it, or something in one."""
    return [
        (place(path), node.value)
        for path in files(*ROOMS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value)
    ]


@pytest.mark.parametrize("file,dotted", dotted_strings())
def test_every_dotted_string_resolves(file: str, dotted: str) -> None:
    module, _, name = dotted.partition(":")
    path = ROOT / module.replace(".", "/")
    source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    assert source.is_file(), f"{file} names {dotted!r}, and there is no such module"
    defined = {node.name for node in parsed(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert not name or name in defined, f"{file} names {dotted!r}, and {module} defines no {name}"


def test_the_tables_of_dotted_strings_are_read() -> None:
    named = {dotted for _, dotted in dotted_strings()}
    assert {"merging.cli.commands.fit:digest", "merging.analysis.measurements.drift:measure_drift"} <= named


def test_nothing_directly_in_app_is_called_like_a_standard_module() -> None:
    # The folder app/ comes first on the path of the running app.
    names = {path.stem for path in (ROOT / "app").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names & (set(sys.stdlib_module_names) | {"merging", "viz"}) == set()
