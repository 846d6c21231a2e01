"""Pages show experts under the titles of their data sets; clicks, links and files keep the keys."""

from __future__ import annotations

import pandas as pd
import pytest

from app import page_text
from app.reading import expert_names
from viz.figure_text import role_name

TITLES = {"land": "Land use", "signs": "Traffic signs"}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_names, "data_set_titles", lambda: TITLES)


def test_a_chart_shows_titles_and_hands_back_keys() -> None:
    table = pd.DataFrame({"expert": ["land", "mine"], "tensor": ["land", "x"]})
    shown, options, back = expert_names.show_names(
        table, {"selected": ("land", "x"), "experts": ["mine", "land"], "name": "land"}
    )
    assert shown["expert"].tolist() == ["Land use", "mine"] and shown["tensor"].tolist() == ["land", "x"]
    assert options == {"selected": ("Land use", "x"), "experts": ["mine", "Land use"], "name": "land"}
    assert expert_names.keys_of_mark({"expert": "Land use", "tensor": "Land use"}, back) == {
        "expert": "land",
        "tensor": "Land use",
    }


def test_names_that_would_be_the_same_stay_keys() -> None:
    table = pd.DataFrame({"first": ["land"], "second": ["Land use"]})
    shown, _, back = expert_names.show_names(table, {})
    assert shown.iloc[0].tolist() == ["land", "Land use"] and not back


def test_names_of_the_bundled_data_and_of_roles() -> None:
    assert page_text.correct_titles("Expert for Handwriting digits") == "Expert for Handwritten digits"
    assert [role_name(role) for role in ("shift", "norm_scale", "linear")] == ["bias", "norm scale", "linear"]
