"""Figures are made once, and what pages show of them is encoded with them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from app.reading import figures

TABLE = pd.DataFrame({"step": [0, 1, 0, 1], "expert": ["a", "a", "b", "b"], "loss": [2.0, 1.0, 2.0, 1.5]})
OPTIONS: dict[str, Any] = {"unit": "Loss", "experts": ["a", "b"], "window": 2, "overall": "all", "present": False}


@pytest.mark.parametrize("dark", [False, True])
def test_what_pages_show_holds_no_second_copy_of_the_data(dark: bool) -> None:
    themed = figures.draw_figure("learning_loss", TABLE, OPTIONS, dark)
    shown = figures.draw_page_figure("learning_loss", TABLE, OPTIONS, dark)
    assert themed is figures.draw_figure("learning_loss", TABLE, OPTIONS, dark)
    assert shown.to_dict()["data"] is themed.to_dict()["data"]
    assert shown.to_dict()["layout"]["height"] > themed.to_dict()["layout"]["height"]
