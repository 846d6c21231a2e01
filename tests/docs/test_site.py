"""The site of the documentation builds without a warning, and asks nothing of the network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import merging
import viz
from app.session.address import ADDRESS
from merging.cli.command_table import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|iframe|link|source)[^>]*(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert {path.name: found for path in pages if (found := LOADED.findall(path.read_text("utf-8")))} == {}
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert "url(http" not in styles and "@import" not in styles


def test_public_names_are_in_the_reference(site: Path) -> None:
    library, charts = ((site / f"{name}.html").read_text("utf-8") for name in ("api", "charts"))
    public = set(merging.__all__) - {"__version__"}
    assert {name for name in public if f'id="merging.{name}"' not in library} == set()
    assert {name for name in viz.__all__ if f'id="viz.{name}"' not in charts} == set()


def test_pages_that_are_written_from_data_are_whole(site: Path) -> None:
    keys = {
        "methods": [method.key for method in merging.list_methods()],
        "addresses": [entry.key for entry in ADDRESS],
    }
    for name, expected in keys.items():
        text = (site / f"{name}.html").read_text("utf-8")
        assert [key for key in expected if f"<code>{key}</code>" not in text] == []
    commands = (site / "command_line.html").read_text("utf-8")
    assert [name for name in COMMANDS if f"mergescope {name} " not in commands] == []


def test_words_for_tests_are_not_shown(site: Path) -> None:
    assert not [path.name for path in site.glob("*.html") if "no-run: needs your data" in path.read_text("utf-8")]
