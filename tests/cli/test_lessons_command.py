"""The command ``lessons``: a list, a check, and a beginning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "merging", "lessons", *words], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.full
def test_a_new_lesson_passes_its_check_and_is_listed(tmp_path: Path) -> None:
    made = run("new", "own", "--to", str(tmp_path))
    assert made.returncode == 0 and "own.yaml" in made.stdout
    checked = run("check", str(tmp_path / "own.yaml"), "--store", str(tmp_path / "store"))
    assert checked.returncode == 0, checked.stdout
    assert "No problems." in checked.stdout and "+16.3 points" in checked.stdout
    listed = json.loads(run("list", "--json", MERGESCOPE_LESSONS=str(tmp_path)).stdout)
    assert "own" in {row["key"] for row in listed["lessons"]} and listed["refused"] == []


@pytest.mark.full
def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    assert run("new", "own", "--to", str(tmp_path)).returncode == 0
    again = run("new", "Own!", "--to", str(tmp_path / "nowhere"))
    assert again.returncode == 2 and "small letters" in again.stderr and "no folder" in again.stderr
    assert "exists already" in run("new", "own", "--to", str(tmp_path)).stderr
    text = (tmp_path / "own.yaml").read_text("utf-8").replace("page: masks", "page: mask")
    (tmp_path / "own.yaml").write_text(text, "utf-8")
    checked = run("check", str(tmp_path / "own.yaml"), "--store", str(tmp_path / "store"))
    assert checked.returncode == 1 and "PROBLEM: Step 3 (do): there is no page 'mask'" in checked.stdout
