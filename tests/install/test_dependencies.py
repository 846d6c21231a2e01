"""A Python that is too old and packages that are missing or do not fit are named in a sentence."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from merging.base.dependencies import describe_wrong_dependencies

ROOT = Path(__file__).resolve().parents[2]
TOO_OLD = "Mergescope needs Python 3.11 or newer, and this is Python 3.10."


def describe_needs(folder: Path, monkeypatch: pytest.MonkeyPatch, *needs: str) -> str:
    """The sentence where a distribution is installed that needs these packages."""
    info = folder / "with_needs-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: with-needs", "Version: 1.0", *(f"Requires-Dist: {need}" for need in needs)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    return describe_wrong_dependencies("with-needs")


@pytest.mark.parametrize(
    ("need", "problem", "command"),
    [
        ("click>=99,<100", "click 99 or newer, but {click} is installed", "'click<100,>=99'"),
        ("plotly>=1,<2", "plotly older than 2, but {plotly} is installed", "'plotly<2,>=1'"),
        ("torch>=1,<2.1", "torch older than 2.1, but {torch} is installed", "'torch<2.1,>=1'"),
        ("no-such-package", "no-such-package, which is not installed", "no-such-package"),
    ],
)
def test_a_package_that_does_not_fit_is_named(
    need: str, problem: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {name: metadata.version(name) for name in ("click", "plotly", "torch")}
    expected = f"Mergescope needs {problem.format(**versions)}: pip install {command}"
    assert describe_needs(tmp_path, monkeypatch, "numpy>=1", need, "pandas<99") == expected


def test_all_packages_that_do_not_fit_are_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = describe_needs(tmp_path, monkeypatch, "no-such-package>=1", "nor-this-one", 'not-needed; extra == "hub"')
    assert text == (
        "Mergescope needs no-such-package, which is not installed, and nor-this-one, which is not installed: "
        "pip install 'no-such-package>=1' nor-this-one"
    )


def test_nothing_is_said_where_all_fit_or_nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_needs(tmp_path, monkeypatch, "numpy", "torch>=2", 'tomli; python_version < "3"') == ""
    assert describe_wrong_dependencies("no-such-distribution") == ""


def end_early(*words: str) -> str:
    """What a process of this Python says as it fails, without a traceback."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    return done.stderr.strip()


def test_an_older_python_is_refused_in_a_sentence() -> None:
    old = "import sys; sys.version_info = (3, 10, 13, 'final', 0); sys.argv = {}\n"
    assert end_early("-c", old.format(["-m"]) + "import merging") == TOO_OLD
    library = "try: import merging\nexcept ImportError as error: sys.exit(str(error))"
    assert end_early("-c", old.format(["notebook"]) + library) == TOO_OLD


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_an_older_python_reads_as_far_as_the_sentence(name: str) -> None:
    assert ast.parse((ROOT / "merging" / name).read_text("utf-8"), feature_version=(3, 9))


def test_a_package_without_which_no_command_starts_is_named() -> None:
    """As with a Python that has only its own library."""
    run = "runpy.run_module('merging', run_name='__main__')"
    text = end_early("-I", "-S", "-c", f"import runpy, sys; sys.path.append({str(ROOT)!r}); {run}")
    assert text.startswith("Mergescope needs the package ") and "make app" in text
