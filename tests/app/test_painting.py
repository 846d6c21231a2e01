"""Strokes on a table of factors, and the cells that gestures mean; no page."""

from __future__ import annotations

import numpy as np
import pytest

from app.session.painting import (
    MAX_STROKES,
    Painting,
    boxed_cells,
    clicked_cells,
    largest_tensors,
    random_tensors,
    select_names,
)

EXPERTS, TENSORS = ("a", "b", "c"), ("t0", "t1", "t2", "t3")
FACTS = {"tensor": TENSORS, "section": ("in", "block 0", "block 0", "out"), "part": ("x", "y", "z", "z")}


@pytest.fixture
def painting() -> Painting:
    return Painting.blank(EXPERTS, TENSORS)


def one_cell(row: int, column: int) -> np.ndarray:
    cells = np.zeros((3, 4), bool)
    cells[row, column] = True
    return cells


def test_strokes_are_undone_and_redone_one_by_one(painting: Painting) -> None:
    for column in range(3):
        assert painting.paint(one_cell(1, column), 0.5, f"stroke {column}")
    before = painting.factors
    painting.undo()
    painting.undo()
    np.testing.assert_array_equal(painting.factors, [[1, 1, 1, 1], [0.5, 1, 1, 1], [1, 1, 1, 1]])
    painting.redo()
    assert [stroke.words for stroke in painting.strokes] == ["stroke 0", "stroke 1"] and len(
        painting.undone_strokes
    ) == 1
    painting.redo()
    painting.redo()  # there is nothing more to redo
    np.testing.assert_array_equal(painting.factors, before)
    assert before[0, 0] == 1  # a table that was drawn is never changed in place


def test_a_stroke_that_changes_nothing_is_none_and_a_new_one_forgets_what_was_undone(painting: Painting) -> None:
    assert not painting.paint(one_cell(0, 0), 1.0, "nothing")
    painting.undo()
    assert not painting.strokes and not painting.undone_strokes
    painting.paint(one_cell(0, 0), 0.0, "one")
    painting.undo()
    assert not painting.paint(one_cell(0, 0), 1.0, "nothing") and len(painting.undone_strokes) == 1
    painting.paint(one_cell(2, 3), -1.0, "other")
    assert not painting.undone_strokes and painting.factors[2, 3] == -1


def test_the_last_hundred_strokes_are_kept(painting: Painting) -> None:
    for number in range(MAX_STROKES + 5):
        painting.paint(one_cell(0, 0), float(number + 2), str(number))
    assert len(painting.strokes) == MAX_STROKES == 100
    for _ in range(200):
        painting.undo()
    assert painting.factors[0, 0] == 6  # the first five strokes can no longer be undone
    for _ in range(200):
        painting.redo()
    assert painting.factors[0, 0] == MAX_STROKES + 6


def test_going_to_a_table_undoes_or_redoes_where_it_was_there_before(painting: Painting) -> None:
    blank = painting.factors
    painting.paint(one_cell(0, 0), 0.0, "one")
    one = painting.factors
    painting.paint(one_cell(1, 1), 0.0, "two")
    painting.go_to(blank, "address")
    assert (len(painting.strokes), len(painting.undone_strokes)) == (0, 2)
    painting.go_to(one, "address")
    assert (len(painting.strokes), len(painting.undone_strokes)) == (1, 1)
    painting.go_to(one, "address")
    assert (len(painting.strokes), len(painting.undone_strokes)) == (1, 1)
    painting.paint(one_cell(0, 0), 1.0, "back by hand")
    painting.go_to(blank, "address")  # where it is already, although the first stroke started there, too
    assert [stroke.words for stroke in painting.strokes] == ["one", "back by hand"]
    painting.undo()
    painting.go_to(np.full((3, 4), 2.0), "address")
    assert [stroke.words for stroke in painting.strokes] == ["one", "address"] and not painting.undone_strokes


@pytest.mark.parametrize(("mark", "cells"), [
    ({"expert": "b", "tensor": "t2"}, [(1, 2)]),
    ({"expert": "b"}, [(1, 0), (1, 1), (1, 2), (1, 3)]),
    ({"tensor": "t2"}, [(0, 2), (1, 2), (2, 2)]),
    ({"section": "block 0"}, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]),
    ({"part": "z"}, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (2, 3)]),
    ({}, [(i, j) for i in range(3) for j in range(4)]),
    ({"expert": "nobody"}, []),
])  # fmt: skip
def test_a_mark_means_its_cells(mark: dict[str, str], cells: list[tuple[int, int]]) -> None:
    assert [tuple(cell) for cell in np.argwhere(clicked_cells(EXPERTS, FACTS, mark)).tolist()] == cells


ORDER = (3, 0, 1, 2)  # the chart's columns show t3, t0, t1, t2


@pytest.mark.parametrize(("box", "rows", "columns"), [
    ({"x": [0.6, 2.2], "y": [0.1, 0.2]}, {0}, {0, 1}),
    ({"x": [2.2, 0.6], "y": [1.4, 0.6]}, {1}, {0, 1}),  # drawn from right to left and upward
    ({"x": [-9, 0.4], "y": [-5, 1.2]}, {0, 1}, {3}),
    ({"x": [0, 0], "y": [2, 3.4]}, {0, 1, 2}, {3}),  # the last row is all experts
    ({"x": [0, 1], "xref": "x2", "y": [1, 2]}, {1, 2}, {0, 1, 2, 3}),  # over the names of rows
    ({"x": [2.9, 3.1], "y": [0, 1], "yref": "y3"}, {0, 1, 2}, {2}),  # over the names of groups
])  # fmt: skip
def test_a_rectangle_means_the_cells_that_it_touches(box: dict, rows: set[int], columns: set[int]) -> None:
    cells = np.argwhere(boxed_cells(3, ORDER, box))
    assert (set(cells[:, 0]), set(cells[:, 1])) == (rows, columns)
    assert len(cells) == len(rows) * len(columns)


def test_none_chosen_means_all() -> None:
    assert select_names(EXPERTS, []).all() and select_names(EXPERTS, ["c"]).tolist() == [False, False, True]


def test_random_tensors_keep_about_as_many_scalars_and_never_more() -> None:
    numels = [100, 1, 50, 7, 30, 12, 90, 3]
    for seed in range(20):
        kept = random_tensors(numels, 120, 2, seed)
        assert (kept[0] == kept[1]).all()
        total = sum(n for n, keep in zip(numels, kept[0], strict=True) if keep)
        left = [n for n, keep in zip(numels, kept[0], strict=True) if not keep]
        assert total <= 120 and all(total + n > 120 for n in left)  # no other tensor would have fitted
        np.testing.assert_array_equal(kept, random_tensors(numels, 120, 2, seed))
    assert len({random_tensors(numels, 120, 1, seed).tobytes() for seed in range(20)}) > 5


def test_the_largest_have_the_largest_mean_and_missing_scores_count_as_zero() -> None:
    scores = np.array([[1, 4, 0, np.nan], [3, 0, 0, 0.1]])
    assert largest_tensors(scores, 1).tolist() == [[True, False, False, False]] * 2  # 2 and 2: the first of equals
    assert largest_tensors(scores, 3).tolist() == [[True, True, False, True]] * 2
    assert not largest_tensors(scores, 0).any()
