"""Words about an image count depths as figures do: 0 is before block 0, b after b blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from merging.models.model_references import PRETRAINED
from merging.study.one_image.image_sentence import describe_image


def summary(model: str, **fields: Any) -> pd.DataFrame:
    row = {
        "model": model, "title": model, "answer": "cat", "probability": 0.5, "followed": "dog", "right": False,
        "followed_probability": 0.25, "stays": 5, "parts": -1,
    }  # fmt: skip
    return pd.DataFrame([row | fields])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stays": 5}, "Its answer is that of the pretrained model, and stays from depth 5 on."),
        ({"stays": 0}, "Its answer is that of the pretrained model, and stays from depth 0 on."),
        ({"parts": 4}, "It parts from the answer of the pretrained model at depth 4."),
    ],
)
def test_a_depth_in_words_is_that_of_the_figure(fields: dict[str, Any], said: str) -> None:
    image: Any = SimpleNamespace(label=1)
    words = describe_image(summary("A run", **fields), image, summary(PRETRAINED))
    assert words.endswith(said) and "block" not in words
