"""What importing the program loads, seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "package,forbidden",
    [
        ("merging", ("torch", "streamlit", "plotly", "pandas")),
        ("merging.engine.run, merging.runs.execute, merging.jobs.runner", ("streamlit", "plotly", "viz", "app")),
        ("viz", ("streamlit", "app")),
    ],
)
@pytest.mark.slow
def test_import_directions(package, forbidden):
    script = f"import sys, {package}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert not set(forbidden) & set(loaded)
