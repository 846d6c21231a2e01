"""Saliency: an example worked by hand, masks, and the table that follows the prune ratio."""

from __future__ import annotations

import numpy as np
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import merging
from merging.methods.shared import saliency, trimming


def test_the_worked_saliency_example():
    """Three experts, five tensors, worked by hand."""
    vectors = [
        [[0, 0], [1, -1], [0.2, 0.2], [3, 0], [0.5]],
        [[0, 0], [1, 1], [0.2, 0.2], [0, 3], [0.1]],
        [[0, 0], [-1, 0], [0.2, -0.4], [0, 0], [0]],
    ]
    scores = np.array(
        [
            [
                float(saliency.deviations(torch.tensor(row, dtype=torch.float64), "deviation")[k].mean())
                for row in zip(*vectors, strict=True)
            ]
            for k in range(3)
        ]
    )
    expected = [[0, 0.833333, 0.1, 1.5, 0.3], [0, 0.833333, 0.1, 1.5, 0.1], [0, 0.666667, 0.2, 1.0, 0.2]]
    assert np.allclose(scores, expected, atol=1e-6)
    assert saliency.own_masks(scores, 0.4)[0].tolist() == [False, True, False, True, False]
    assert saliency.own_masks(scores, 0.6).tolist() == [[False, False, False, True, False]] * 3
    assert not saliency.own_masks(scores, 0.8).any()


def test_the_shared_mask_is_the_union():
    scores = np.array([[0, 0.8, 0.1, 1.5, 0.3], [0, 0.1, 0.9, 1.5, 0.2]])
    own = saliency.own_masks(scores, 0.4)
    assert saliency.final_masks(own, True)[0].tolist() == [False, True, True, True, False]
    assert trimming.floor_share(100, 0.29) == 29


@given(ratio=st.floats(0, 1), more=st.floats(0, 1))
@settings(deadline=None)
def test_a_larger_ratio_never_keeps_more(ratio, more):
    scores = np.random.default_rng(0).random((3, 40))
    low, high = sorted((ratio, more))
    assert (saliency.own_masks(scores, high) <= saliency.own_masks(scores, low)).all()


def test_the_live_table_equals_the_edits():
    base, experts = tiny.family()
    tables = [
        merging.merge(base, experts, edits=[("lwptv", {"prune_ratio": ratio})]).tables["saliency"]
        for ratio in (0.7, 0.3)
    ]
    assert saliency.apply_ratio(tables[0], 0.3).equals(tables[1])


def test_query_key_and_value_of_a_table_become_one_tensor():
    base, experts = tiny.family()
    table = merging.merge(base, experts, edits=[("lwptv", {"split_qkv": True})]).tables["saliency"]
    packed = merging.merge(base, experts, edits=["lwptv"]).tables["saliency"]
    whole = saliency.join_thirds(table)
    assert saliency.join_thirds(packed) is packed
    facts = ["expert", "tensor", "order", "section", "role", "part", "numel"]
    assert whole[facts].equals(packed[facts]) and list(whole) == list(packed)
    assert np.allclose(whole["saliency"], packed["saliency"])  # thirds of one size: the mean is that of all scalars
    thirds = table[table["tensor"].str.contains("[", regex=False)]
    stem = thirds["tensor"].str.partition("[")[0]
    for (expert, tensor), rows in thirds.groupby(["expert", stem]):
        row = whole[(whole["expert"] == expert) & (whole["tensor"] == tensor)].iloc[0]
        assert row["kept"] == rows["kept"].any() and row["final"] == rows["final"].any()
    assert len(set(thirds["kept"])) == 2
