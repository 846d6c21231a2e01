"""Stored answers: every number comes back, an unpacking of one's own finds the same, and damaged texts are refused."""

from __future__ import annotations

import base64
import json
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from merging.base.errors import StoreError
from merging.base.files.tables import read_columns, write_table
from merging.images.benchmarks.answers import (
    COLUMNS,
    MARGIN,
    PREDICTED,
    SplitAnswers,
    make_answers_table,
    pack_correctness,
    pack_numbers,
    read_answers,
    unpack_correctness,
    unpack_numbers,
)

PLAIN = settings(max_examples=60, deadline=None)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 70))  # m models, n images
CLASSES = arrays.arrays(np.int64, SHAPES, elements=st.integers(0, 65_535))
HALVES = arrays.arrays(np.float16, SHAPES, elements=st.floats(-2, 2, width=16))
RIGHT = st.dictionaries(
    st.text(min_size=1, max_size=8), arrays.arrays(np.bool_, st.integers(0, 40), elements=st.booleans()), max_size=4
)


class Labels:
    """The labels of a benchmark of one data set, "t"."""

    tasks = (SimpleNamespace(key="t"),)

    def __init__(self, labels: np.ndarray, classes: int = 65_536) -> None:
        self.labels, self.task = labels, SimpleNamespace(class_names=range(classes))

    def find_task(self, key: str) -> SimpleNamespace:
        assert key == "t"
        return self.task

    def load_labels(self, key: str, split: str) -> np.ndarray:
        assert (key, split) == ("t", "reporting")
        return self.labels


def answers_of(predicted: np.ndarray, margin: np.ndarray, split: str = "reporting") -> SplitAnswers:
    names = tuple(f"model {number}" for number in range(len(predicted)))
    return SplitAnswers("t", split, names, predicted, margin, np.zeros(predicted.shape[1], np.int64))


def unpack_plainly(text: str, code: str, n: int) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), code).reshape(-1, n)


@PLAIN
@given(CLASSES)
def test_classes_come_back_and_are_two_bytes_each(predicted: np.ndarray) -> None:
    text, n = pack_numbers(predicted, PREDICTED), predicted.shape[1]
    np.testing.assert_array_equal(unpack_numbers(text, PREDICTED, n), predicted)
    np.testing.assert_array_equal(unpack_plainly(text, "<u2", n), predicted)


@PLAIN
@given(HALVES)
def test_margins_come_back_in_half_precision(margin: np.ndarray) -> None:
    text, n = pack_numbers(margin.astype(np.float64), MARGIN), margin.shape[1]
    np.testing.assert_array_equal(unpack_numbers(text, MARGIN, n), margin)
    np.testing.assert_array_equal(unpack_plainly(text, "<f2", n), margin)


@PLAIN
@given(CLASSES, st.data())
def test_tables_come_back_from_files(tmp_path_factory: pytest.TempPathFactory, predicted: np.ndarray, data) -> None:
    margin = data.draw(arrays.arrays(np.float16, predicted.shape, elements=st.floats(-2, 2, width=16)))
    labels = data.draw(arrays.arrays(np.int64, predicted.shape[1], elements=st.integers(0, 65_535)))
    one = answers_of(predicted, margin.astype(np.float64))
    folder = tmp_path_factory.mktemp("answers")
    schema = write_table(
        folder, "answers", make_answers_table([one, answers_of(predicted, margin, "choosing")]), packed=True
    )
    table = read_columns(folder / "tables" / "answers.csv.gz", schema)
    (found,) = read_answers(table, Labels(labels), "reporting").values()
    assert (found.task, found.split, found.models) == (one.task, one.split, one.models)
    np.testing.assert_array_equal(found.predicted, predicted)
    np.testing.assert_array_equal(found.margin, margin)
    np.testing.assert_array_equal(found.correctness, [np.mean(column) for column in (predicted == labels).T])


def test_a_data_set_without_images_has_no_answers() -> None:
    one = answers_of(np.zeros((2, 0), np.int64), np.zeros((2, 0)))
    (found,) = read_answers(make_answers_table([one]), Labels(one.labels), "reporting").values()
    assert found.predicted.shape == found.margin.shape == (2, 0) and found.correctness.shape == (0,)


@PLAIN
@given(CLASSES, st.integers(1, 80))
def test_texts_of_other_numbers_of_images_are_refused(predicted: np.ndarray, n: int) -> None:
    text = pack_numbers(predicted, PREDICTED)
    if predicted.size % n:
        with pytest.raises(StoreError, match="are damaged"):
            unpack_numbers(text, PREDICTED, n)
    else:
        assert unpack_numbers(text, PREDICTED, n).shape == (predicted.size // n, n)


@PLAIN
@given(CLASSES, st.data())
def test_texts_that_end_early_are_refused(predicted: np.ndarray, data) -> None:
    packed = base64.b64decode(pack_numbers(predicted, PREDICTED))
    end = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(StoreError, match="are damaged"):
        unpack_numbers(base64.b64encode(packed[:end]).decode(), PREDICTED, predicted.shape[1])


@PLAIN
@given(CLASSES, st.data())
def test_texts_with_another_character_are_refused_or_the_same(predicted: np.ndarray, data) -> None:
    text = pack_numbers(predicted, PREDICTED)
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters(max_codepoint=0x2FF)) + text[place + 1 :]
    try:
        found = unpack_numbers(changed, PREDICTED, predicted.shape[1])
    except StoreError:
        return
    np.testing.assert_array_equal(found, predicted)  # the last characters of a text may have spare bits


@pytest.mark.parametrize("text", ["", "====", "no text of ours", "é", base64.b64encode(b"plain bytes").decode()])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(StoreError, match="numbers of 3 images"):
        unpack_numbers(text, PREDICTED, 3)


def test_a_text_that_unpacks_to_more_than_there_can_be_is_refused() -> None:
    huge = base64.b64encode(zlib.compress(bytes(3 << 17))).decode()  # of 65,536 models
    with pytest.raises(StoreError, match="are damaged"):
        unpack_numbers(huge, PREDICTED, 3)


def changed_table(**cells: object) -> dict[str, np.ndarray]:
    """The table of two models' answers to three images, with other cells."""
    one = answers_of(np.array([[1, 2, 3], [4, 5, 6]]), np.zeros((2, 3)))
    table = {name: make_answers_table([one])[name] for name in COLUMNS}
    return table | {name: np.array([cell], object) for name, cell in cells.items()}


@pytest.mark.parametrize(
    "cells",
    [
        {"n": 4},
        {"models": json.dumps(["one"])},
        {"models": json.dumps(["one", "two", "three"])},
        {"models": "no list"},
        {"models": "7"},
        {"margin": pack_numbers(np.zeros((1, 3)), MARGIN)},
        {"predicted": pack_numbers(np.zeros((3, 3)), PREDICTED)},
        {"predicted": pack_numbers(np.full((2, 3), 7), PREDICTED)},  # of seven classes
        {"predicted": 1.5},
        {"models": None},
    ],
)
def test_tables_whose_cells_do_not_fit_are_refused(cells: dict[str, object]) -> None:
    labels = Labels(np.zeros(3, np.int64), 7)
    assert read_answers(changed_table(), labels, "reporting")["t"].models == ("model 0", "model 1")
    with pytest.raises(StoreError, match="Stored answers are"):
        read_answers(changed_table(**cells), labels, "reporting")


@PLAIN
@given(RIGHT)
def test_which_images_are_right_comes_back(right: dict[str, np.ndarray]) -> None:
    text = pack_correctness(right)
    found = unpack_correctness(text)
    assert list(found) == list(right)
    for task, (n, packed) in json.loads(text).items():
        bits = [byte >> (7 - place) & 1 for byte in base64.b64decode(packed) for place in range(8)]
        np.testing.assert_array_equal(found[task], right[task])
        np.testing.assert_array_equal(bits[:n], right[task])
        assert found[task].dtype == np.float64


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", "null", '{"t": 3}', '{"t": [3]}', '{"t": [3, 4]}', '{"t": ["3", "oA=="]}', '{"t": [3, "?"]}',
        '{"t": [9, "oA=="]}', '{"t": [-1, "oA=="]}', '{"t": [3, "oKA="]}', '{"t": [1e9, "oA=="]}',
        '{"t": [true, "oA=="]}', '{"t": [null, "oA=="]}', '{"t": [3, "oA=="',
    ],
)  # fmt: skip
def test_damaged_texts_of_right_images_are_refused(text: str) -> None:
    assert unpack_correctness('{"t": [3, "oA=="]}')["t"].tolist() == [1, 0, 1]
    with pytest.raises(StoreError, match="are damaged"):
        unpack_correctness(text)
