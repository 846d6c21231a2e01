"""Differences of two models on the same images, against plain resampling of images."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from merging.images.benchmarks.metrics import h_score
from merging.study.previews.bootstrap import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN, paired_differences, subtract_scores


def answers(seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    generator = np.random.default_rng(seed)
    old = {key: (generator.random(60) < 0.6).astype(float) for key in "abcd"}
    new = {key: np.where(generator.random(60) < 0.3, generator.random(60) < 0.9, old[key]).astype(float) for key in old}
    return new, old


def plain(new, old, keys_in, draws=4000, seed=9):
    """The same by drawing images, one task after another."""
    generator = np.random.default_rng(seed)
    rows = {name: [] for name in (*new, IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE)}
    for _ in range(draws):
        means = {}
        for key in new:
            chosen = generator.integers(len(new[key]), size=len(new[key]))
            means[key] = new[key][chosen].mean(), old[key][chosen].mean()
            rows[key].append(means[key][0] - means[key][1])
        inside, outside = (
            [np.mean([means[k][i] for k in new if (k in keys_in) == kind]) for i in (0, 1)] for kind in (True, False)
        )
        rows[IN_DOMAIN].append(inside[0] - inside[1])
        rows[OUT_OF_DOMAIN].append(outside[0] - outside[1])
        rows[H_SCORE].append(h_score(inside[0], outside[0]) - h_score(inside[1], outside[1]))
    return {name: np.percentile(values, [2.5, 97.5]) for name, values in rows.items()}


def test_scores_alone_have_the_same_differences_but_no_intervals():
    new, old = answers()
    scores, reference = (
        pd.DataFrame(
            [(key, right.mean(), len(right)) for key, right in model.items()], columns=["task", "accuracy", "n"]
        )
        for model in (new, old)
    )
    table, expected = subtract_scores(scores, reference, ["a", "b"]), paired_differences(new, old, ["a", "b"])
    assert table[["low", "high"]].isna().all(axis=None)
    shown = [name for name in table if name not in ("low", "high")]
    pd.testing.assert_frame_equal(table[shown], expected[shown])


def test_it_agrees_with_drawing_images():
    new, old = answers()
    table = paired_differences(new, old, ["a", "b"], resamples=4000).set_index("over")
    for name, (low, high) in plain(new, old, ["a", "b"]).items():
        width = high - low
        assert table.loc[name, "low"] == pytest.approx(low, abs=0.12 * width), name
        assert table.loc[name, "high"] == pytest.approx(high, abs=0.12 * width), name


def test_rows_and_numbers():
    new, old = answers(1)
    table = paired_differences(new, old, ["b", "c"])
    assert list(table["over"]) == [IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE, "b", "c", "a", "d"]
    assert list(table["group"]) == ["average"] * 3 + ["in domain"] * 2 + ["out of domain"] * 2
    assert list(table["n"]) == [120, 120, 240, 60, 60, 60, 60] and list(table["tasks"]) == [2, 2, 4, 1, 1, 1, 1]
    rows = table.set_index("over")
    assert rows.loc[IN_DOMAIN, "accuracy"] == pytest.approx((new["b"].mean() + new["c"].mean()) / 2)
    assert rows.loc["a", "difference"] == pytest.approx(new["a"].mean() - old["a"].mean())
    ends = [h_score(rows.loc[IN_DOMAIN, name], rows.loc[OUT_OF_DOMAIN, name]) for name in ("accuracy", "reference")]
    assert rows.loc[H_SCORE, "difference"] == pytest.approx(ends[0] - ends[1])
    assert (table["low"] <= table["difference"]).all() and (table["difference"] <= table["high"]).all()


def test_the_pairing_counts():
    """Models that answer alike differ by nothing, however hard the images are."""
    new, _ = answers(2)
    same = paired_differences(new, new, ["a"])
    assert (same[["difference", "low", "high"]] == 0).all(axis=None)


def test_seeds_and_missing_groups():
    new, old = answers(3)
    first, again, other = (paired_differences(new, old, ["a"], seed=seed) for seed in (0, 0, 1))
    assert first.equals(again) and not first.equals(other)
    alone = paired_differences(new, old, list(new))
    assert list(alone["over"])[:2] == [IN_DOMAIN, "a"]
    empty = paired_differences({**new, "e": np.zeros(0)}, {**old, "e": np.zeros(0)}, ["a"])
    assert "e" not in set(empty["over"])
