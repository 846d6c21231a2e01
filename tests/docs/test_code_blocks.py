"""Every code block of the documents runs, or says why a test does not run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_runner import blocks

ROOT = Path(__file__).resolve().parents[2]
NO_RUN = re.compile(r"no-run: \w.{8,}")
PROGRAMS = {"python", "bash"}
DAILY = {"CONTRIBUTING.md"}  # pages whose blocks `make test` runs, too
DATA = {"yaml", "text", "json", "toml"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("sample_data/*.md"))
)
RUNNING = [name for name in PAGES if any(block.runs for block in blocks((ROOT / name).read_text("utf-8")))]


def test_pages_with_programs_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/tutorial.md", "docs/own_checkpoints.md"} <= set(RUNNING)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_it_is(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    found = blocks(text)
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(found), "a block that no parser finds"
    wrong = [
        f"{name}:{block.line}: {block.language} {block.words}"
        for block in found
        if block.language not in PROGRAMS | DATA
        or (block.language in PROGRAMS and block.words and not NO_RUN.fullmatch(block.words))
        or (block.language in DATA and block.words not in {"", "output"})
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.full) for name in RUNNING]
)
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path) -> None:
    here, paths = tmp_path / "here", {"PYTHONPATH": str(ROOT), "MERGESCOPE_STORE": str(tmp_path / "store")}
    here.mkdir()
    (here / "sample_data").symlink_to(ROOT / "sample_data")
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/page_runner.py"), str(ROOT / name)],
        cwd=here, env=os.environ | paths | {"PATH": programs}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_wrong_block_fails(tmp_path: Path) -> None:
    runner = [sys.executable, str(ROOT / "tests/support/page_runner.py")]
    page = tmp_path / "page.md"
    for text, said in (
        ("```python\nprint(1)\n```\n\n```text output\n2\n```\n", "does not print '2'"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", "line 6"),
        ("```bash\nfalse\ntrue\n```\n", "ended with 1"),
    ):
        page.write_text(text)
        done = subprocess.run([*runner, str(page)], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and said in done.stderr
