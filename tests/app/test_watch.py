"""The losses of a job that learns, as Learning draws and says them."""

from __future__ import annotations

import pandas as pd
import pytest

from app.views.learning import live_learning

DETAILS = [f"step {step} of 40 · entropy 1.50" for step in (1, 2)]


@pytest.mark.parametrize("rows", [[], [(0, "digits", 2.0), (0, "shapes", 1.0)]])
def test_losses_are_numbers_also_before_any_are_written(rows: list[tuple[int, str, float]]) -> None:
    table = live_learning.add_means(pd.DataFrame(rows, columns=["step", "expert", "loss"]), DETAILS)
    assert (str(table["step"].dtype), str(table["loss"].dtype)) == ("int64", "float64")
    assert table["expert"].tolist() == [expert for _, expert, _ in rows] + [live_learning.ALL_TASKS] * 2
    assert table["loss"].tolist()[-1] == 1.5


def test_a_step_without_a_loss_does_not_count_as_one_that_does_not_fall() -> None:
    rows = [(step, "digits", 2.0 - step / 50) for step in range(30) if step != 25]
    rows += [(step, "shapes", 2.0 - step / 50) for step in range(30)]
    said = live_learning.falls_in_words(pd.DataFrame(rows, columns=["step", "expert", "loss"]))
    assert said == "Over the last 10 steps, the mean loss falls on 2 of 2 tasks."
