"""Tests stand alone: what they share lies in tests/support and in fixtures, never in another test file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("*.py"))
SUPPORT = {path.stem: path for path in FILES if not path.name.startswith("test_")}
ASSERTING = re.compile(r"raises|warns|fail|expect|assert_\w+")
IMPORT = re.compile(r"^\s*(?:from|import)\s+(test_\w+|conftest)\b", re.MULTILINE)


def test_no_file_imports_a_test_file() -> None:
    assert [(path.relative_to(TESTS).as_posix(), name) for path in FILES for name in imported_tests(path)] == []


def imported_tests(path: Path) -> list[str]:
    """The test files that a file imports, also in code that it holds as text."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tests = [name for name in modules if name.startswith("test_") or name == "conftest"]
    return tests + [name for text in texts for name in IMPORT.findall(text)]


def test_names_of_test_files_are_different() -> None:
    """Pytest imports them all as modules without a package."""
    names = [path.name for path in FILES if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_every_test_asserts() -> None:
    """Itself, or by functions of its own file and of tests/support that it calls."""
    tests = [path for path in FILES if path.name.startswith("test_")]
    assert [
        f"{path.relative_to(TESTS)}: {name}"
        for path in tests
        for name in functions(path)
        if name.startswith("test_") and not asserts(path, name)
    ] == []


@cache
def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The functions and methods of a file by name."""
    return {one.name: one for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, ast.FunctionDef)}


def asserts(path: Path, name: str, seen: frozenset[tuple[Path, str]] = frozenset()) -> bool:
    """Whether a function asserts; one that it reached over ``seen`` is not asked again."""
    return (path, name) not in seen and any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node))
        or (isinstance(node, ast.Call) and ASSERTING.fullmatch(ast.unparse(node.func).rpartition(".")[2]))
        or (isinstance(node, ast.Call) and any(asserts(*one, seen | {(path, name)}) for one in called(path, node)))
        for node in ast.walk(functions(path)[name])
    )


def called(path: Path, call: ast.Call) -> Iterator[tuple[Path, str]]:
    """The function of the same file or of tests/support that a call names; a method by its name alone."""
    module, _, name = ast.unparse(call.func).rpartition(".")
    places = (
        [SUPPORT[module]] if module in SUPPORT else [path, *(SUPPORT[one] for one in imported(path) if one in SUPPORT)]
    )
    yield from ((place, name) for place in places if name in functions(place))


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules from which a file imports names."""
    return frozenset(
        one.module or "" for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, ast.ImportFrom)
    )
