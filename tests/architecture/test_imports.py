"""What importing the program loads, seen in a process of its own."""

from __future__ import annotations

import pytest
from loading import list_loaded_modules


@pytest.mark.parametrize(
    "package,forbidden",
    [
        ("merging", ("torch", "streamlit", "plotly", "pandas")),
        (
            "merging.engine.run, merging.study.runs.execute, merging.study.run_queue",
            ("streamlit", "plotly", "viz", "app"),
        ),
        ("viz", ("streamlit", "app")),
        (
            "merging.cli.main, merging.models.hub.fetch, merging.models.formats.hub_models, app.main",
            ("huggingface_hub", "httpx2", "hf_xet"),
        ),
    ],
)
@pytest.mark.full
def test_import_directions(package, forbidden):
    assert not set(forbidden) & list_loaded_modules(f"import {package}")
