"""Tests stand alone: what they share lies in tests/support and in fixtures, never in another test file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("*.py"))
IMPORT = re.compile(r"^\s*(?:from|import)\s+(test_\w+|conftest)\b", re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_file_imports_a_test_file(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    in_code = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [name for name in named if name.startswith("test_") or name == "conftest"]
    assert found + [name for text in in_code for name in IMPORT.findall(text)] == []


def test_names_of_test_files_are_different() -> None:
    """Pytest imports them all as modules without a package."""
    names = [path.name for path in FILES if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))
