"""Tests stand alone: what they share lies in tests/support and in fixtures, never in another test file."""

from __future__ import annotations

import ast
import re
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
    calls: dict[tuple[Path, str], set[tuple[Path, str]]] = {}
    asserting = set()
    for path in FILES:
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        modules = {one.module or "" for one in nodes if isinstance(one, ast.ImportFrom)} & set(SUPPORT)
        for node in (one for one in nodes if isinstance(one, ast.FunctionDef)):
            parts = list(ast.walk(node))
            names = [ast.unparse(one.func).rpartition(".") for one in parts if isinstance(one, ast.Call)]
            calls[path, node.name] = {
                (place, last)
                for first, _, last in names
                for place in ([SUPPORT[first]] if first in SUPPORT else [path, *(SUPPORT[one] for one in modules)])
            }
            raised = [ast.unparse(one) for one in parts if isinstance(one, ast.Raise)]
            if any(isinstance(one, ast.Assert) for one in parts) or "AssertionError" in " ".join(raised):
                asserting.add((path, node.name))
            if any(ASSERTING.fullmatch(last) for _, _, last in names):
                asserting.add((path, node.name))
    while more := {one for one, called in calls.items() if called & asserting} - asserting:
        asserting |= more
    silent = [one for one in calls if one not in asserting and one[0].name.startswith("test_")]
    assert [f"{path.relative_to(TESTS)}: {name}" for path, name in silent if name.startswith("test_")] == []
