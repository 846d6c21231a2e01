"""Tests stand alone: what they share lies in tests/support and in fixtures, never in another test file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("*.py"))
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
