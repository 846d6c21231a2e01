"""The spread of scores between seeds, against a textbook's formulas."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from merging.base import settings
from merging.study import training_tables

ROWS = [(0, "a", 0.70), (0, "b", 0.60), (0, "c", 0.50), (1, "a", 0.74), (1, "b", 0.60), (1, "c", 0.62)]
T_OF_1 = 12.706204736174698  # 97.5 % quantile of Student's t with 1 degree of freedom


def make_scores(rows: list[tuple[int, str, float]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["seed", "label", "value"])
    return table.assign(part="in domain", low=table["value"], high=table["value"], n=100)


def test_summary_pools_the_variances_of_merges() -> None:
    reference = [(0, "Pretrained", 0.1), (1, "Pretrained", 0.9)]  # no merge, so it has no part in the deviation
    found = training_tables.summarize_seeds(make_scores(ROWS + reference), "in domain")
    deviation = math.sqrt((0.04**2 / 2 + 0 + 0.12**2 / 2) / 3)
    assert list(found["label"]) == ["a", "b", "c"]
    assert found["value"].to_list() == pytest.approx([0.72, 0.60, 0.56])
    assert found["deviation"].to_list() == pytest.approx([deviation] * 3)
    assert (found["high"] - found["value"]).to_list() == pytest.approx([T_OF_1 * deviation / math.sqrt(2)] * 3)
    assert (found["value"] - found["low"]).to_list() == pytest.approx([T_OF_1 * deviation / math.sqrt(2)] * 3)


def test_swapped_pairs_have_another_order_with_another_seed() -> None:
    assert training_tables.count_swapped_pairs(make_scores(ROWS), "in domain") == (1, 3)  # b and c


def test_one_seed_has_no_spread() -> None:
    with pytest.raises(ValueError, match="needs two or more seeds, and the table has 1"):
        training_tables.summarize_seeds(make_scores(ROWS[:3]), "in domain")


def test_a_benchmark_without_the_table_has_none(tmp_path: Path) -> None:
    assert training_tables.read_seeds(tmp_path) is None
    bundled = training_tables.read_seeds(settings.BUNDLED_FOLDER)
    assert bundled is not None and bundled["seed"].nunique() == 2
