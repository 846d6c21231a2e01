"""What importing the program loads, seen in a process of its own."""

from __future__ import annotations

import pytest
from loading import loaded_by


@pytest.mark.parametrize(
    "package,forbidden",
    [
        ("merging", ("torch", "streamlit", "plotly", "pandas")),
        ("merging.engine.run, merging.study.runs.execute, merging.study.runner", ("streamlit", "plotly", "viz", "app")),
        ("viz", ("streamlit", "app")),
        (
            "merging.cli.main, merging.models.hub.fetch, merging.models.formats.hub, app.main",
            ("huggingface_hub", "httpx2", "hf_xet"),
        ),
    ],
)
@pytest.mark.slow
def test_import_directions(package, forbidden):
    assert not set(forbidden) & loaded_by(f"import {package}")
