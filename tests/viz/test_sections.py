"""The axis through a network with one tower and with several."""

from __future__ import annotations

import pandas as pd

from viz.parts import tensor_columns
from viz.parts.tensor_columns import TensorColumns

ONE = ["embeddings", "block 0", "block 0", "block 1", "output"]
TWO = ["embeddings", "encoder block 0", "encoder block 1", "encoder output", "decoder block 0", "decoder block 1",
       "decoder block 2", "decoder output"]  # fmt: skip


def columns(labels):
    names = [f"t{at}" for at in range(len(labels))]
    return TensorColumns.from_table(pd.DataFrame({"tensor": names, "order": range(len(labels)), "section": labels}))


def test_blocks_are_numbered_in_their_middles():
    axis = columns(ONE).axis()
    assert (axis["tickvals"], axis["ticktext"]) == ([1.5, 3.0], ["0", "1"])
    assert [label["text"] for label in columns(ONE).end_labels()] == ["embeddings", "output"]


def test_towers_stand_below_the_numbers_of_their_middle_blocks():
    axis = columns(TWO).axis()
    assert axis["ticktext"] == ["0", "1<br>encoder", "0", "1<br>decoder", "2"]
    assert [label["text"] for label in columns(TWO).end_labels()] == ["embeddings", "output"]  # none between towers


def test_names_of_towers_are_no_markup():
    assert "<b>" not in tensor_columns.block_ticks(tensor_columns.find_spans(["<b>x</b> block 0"]))["ticktext"][0]


def test_sections_are_short_in_labels():
    names = ("block 3", "encoder block 3", "output")
    assert [tensor_columns.short_section(name) for name in names] == [
        "3",
        "encoder 3",
        "output",
    ]
