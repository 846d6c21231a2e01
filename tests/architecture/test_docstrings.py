"""Docstrings say the shapes of arrays: of every public function and method that takes or gives any."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARRAY = re.compile(r"\b(?:Tensor|ndarray|NDArray)\b")
SIZE = r"\*?[\w *+/·×-]+"
LISTED, ONE = rf"\({SIZE}(?:, ?{SIZE})+,?\)", r"\(\*?\w+,?\)"  # "(n, d)", "(*S)"
SHAPE = re.compile(rf"{LISTED}|{ONE}|\bshapes?\b|\bscalar", re.IGNORECASE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, Function]]:
    """Names and definitions of public functions, and of public methods of public classes."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, f"{node.name}.")
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield owner + node.name, node


def takes_or_gives_arrays(function: Function) -> bool:
    """Whether an annotation names a tensor or an array."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    annotations = [argument.annotation for argument in arguments] + [function.returns]
    return any(ARRAY.search(ast.unparse(annotation)) for annotation in annotations if annotation)


def test_shapes_are_recognized() -> None:
    assert all(SHAPE.search(text) for text in ("weights (n, d)", "a tensor (*S)", "(K, *S) -> (*S)", "Of any shape."))
    assert not any(SHAPE.search(text) for text in ("The tensor, on the CPU.", "What came (if anything came) of it."))


def test_shapes_are_said() -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{function.lineno}: {name}"
        for top in ("merging", "viz")
        for path in sorted((ROOT / top).rglob("*.py"))
        for name, function in public_functions(ast.parse(path.read_text("utf-8")).body)
        if takes_or_gives_arrays(function) and not SHAPE.search(ast.get_docstring(function) or "")
    ]
    assert missing == []
