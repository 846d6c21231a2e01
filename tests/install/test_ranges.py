"""The ranges of pyproject.toml, the exact versions of requirements.txt, and what the program imports."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from importlib import metadata
from pathlib import Path

import pytest
import range_ends
from packaging.specifiers import SpecifierSet

import app
import merging
import viz

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (merging, viz, app)
SCRIPTS = ("app.screens.", "app.main")  # pages are drawn when they are imported
RANGES = range_ends.read_ranges()
IMPORTED_AS = {"open_clip_torch": "open_clip", "scikit-learn": "sklearn", "pyyaml": "yaml"}
BROUGHT = {  # what is imported, and not named -> the package that brings it
    "PIL": "streamlit", "pyarrow": "streamlit", "starlette": "streamlit",
    "google": "streamlit", "markupsafe": "jinja2", "dask": "distributed",
}  # fmt: skip


def test_every_exact_version_lies_in_its_range() -> None:
    pins = range_ends.read_pins() | range_ends.read_pins("requirements-workers.txt")
    named = {one.name: one for extra in ("", "workers") for one in RANGES[extra]}
    assert set(named) == set(pins)
    assert [name for name, pin in pins.items() if not SpecifierSet(named[name].text).contains(pin)] == []


def test_the_ends_are_what_pip_reads() -> None:
    lowest, newest = (range_ends.list_requirements(end) for end in range_ends.ENDS)
    assert {"plotly==6.1", "torch==2.13.0"} <= set(lowest) and {"plotly>=6.1,<8", "torch==2.13.0"} <= set(newest)
    assert len(lowest) == len(newest) and RANGES["hub"][0] in RANGES[""]
    with pytest.raises(ValueError, match="expected a range"):
        range_ends.parse_range("plotly")


@pytest.mark.full  # reads every file
def test_every_package_that_is_imported_is_named_or_brought_by_one_that_is() -> None:
    imported = {name for package in PACKAGES for name in list_imports(Path(package.__file__ or "").parent)}
    named = {IMPORTED_AS.get(one.name, one.name) for ranges in RANGES.values() for one in ranges}
    own = {package.__name__ for package in PACKAGES} | sys.stdlib_module_names
    assert imported - own - named == set(BROUGHT)
    assert set(BROUGHT.values()) <= named


def list_imports(folder: Path) -> set[str]:
    """The first words of the modules that the files of a folder import."""
    nodes = [node for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_module_can_be_imported(package: object) -> None:
    names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]  # type: ignore[attr-defined]
    assert len(names) > 50
    for name in names:
        if not name.startswith(SCRIPTS):
            importlib.import_module(name)


@pytest.mark.full
def test_packages_are_at_the_stated_end() -> None:
    """In the environments of `make test-ranges`, whose names say the end."""
    end = Path(sys.prefix).name.removeprefix(".venv-")
    if end == "lowest":
        wrong = [one.name for ranges in RANGES.values() for one in ranges if not is_lowest(one)]
        assert wrong == []


def is_lowest(one: range_ends.Range) -> bool:
    return one.name in range_ends.PINNED or metadata.version(one.name) in SpecifierSet(f"=={one.lowest}")
