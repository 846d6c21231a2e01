"""The notebooks of the documents: short, without outputs, and each runs from its first cell to its last."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MOST_CELLS = 30


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["merge_and_look", "own_checkpoints", "own_method"]
    page = (ROOT / "docs" / "notebooks.md").read_text("utf-8")
    assert all(f"notebooks/{path.name}" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_teaches_and_has_no_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(notebook.cells) <= MOST_CELLS and len(notebook.cells) - len(code) >= len(code) / 2
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "import mergescope" in code[0].source and notebook.cells[0].source.startswith("# ")
    for cell in code:
        ast.parse(cell.source)


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    if importlib.util.find_spec("mergescope") is None:
        shutil.copy(ROOT / "tests" / "support" / "mergescope_stand_in.py", tmp_path / "mergescope.py")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(tmp_path))))
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # of the kernel
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = read(path)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    data = [output.data for output in outputs if "data" in output]
    assert any("text/html" in one for one in data)
    assert not [one for one in data if "cdn.plot.ly" in str(one.get("text/html", ""))[:3000]]  # asks no network
    errors = [output.text for output in outputs if output.get("name") == "stderr"]
    assert not [text for text in errors if text.strip() and "%|" not in text]  # bars only
