"""Which images of a data set are exemplars and which are tested on: seeded, and each data set and part by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from merging.images.benchmarks.build.data_set_split import order_evenly, split_data_set
from merging.images.data_sets.labeled_images import TEST, TRAIN, VALIDATION


def data(**sizes: int) -> Any:
    return SimpleNamespace(parts={part: np.zeros(n, np.int64) for part, n in sizes.items()})


def test_orders_depend_on_the_key_the_part_and_the_seed_and_on_nothing_else() -> None:
    both = data(**{TRAIN: 40, TEST: 40})
    first = split_data_set(both, "cars", 0)
    assert first.exemplars is not None
    orders = [
        first.exemplars[1],
        first.test[1],
        split_data_set(both, "pets", 0).test[1],
        split_data_set(both, "cars", 1).test[1],
    ]
    assert len({tuple(order) for order in orders}) == len(orders)
    assert all(sorted(order) == list(range(40)) for order in orders)
    again = split_data_set(data(**{TRAIN: 9, VALIDATION: 7, TEST: 40}), "cars", 0)
    assert again.test[0] == TEST and again.test[1].tolist() == first.test[1].tolist()


@pytest.mark.parametrize("count", [2, 7, 40])
def test_a_data_set_in_one_piece_is_cut_in_halves_that_share_nothing(count: int) -> None:
    cut = split_data_set(data(**{TRAIN: count}), "cars", 3)
    assert cut.exemplars is not None and cut.cautions
    own, tested = cut.exemplars[1].tolist(), cut.test[1].tolist()
    assert sorted(own + tested) == list(range(count)) and len(own) == count // 2


def test_without_a_training_part_there_are_no_exemplars() -> None:
    cut = split_data_set(data(**{VALIDATION: 5}), "cars", 0)
    assert cut.exemplars is None and cut.test[0] == VALIDATION and "no exemplars" in cut.rule


def test_a_balanced_draw_takes_all_classes_alike() -> None:
    labels = np.array([0] * 30 + [1] * 5 + [2] * 9)
    order = order_evenly(np.random.default_rng(0).permutation(len(labels)), labels)
    assert sorted(order) == list(range(len(labels)))
    for n in range(1, len(labels)):
        counts = np.bincount(labels[order[:n]], minlength=3)
        left = counts < np.bincount(labels)
        assert counts.max() - counts[left].min(initial=counts.max()) <= 1
