"""How a model's tensors are divided over files."""

from __future__ import annotations

import pytest
import torch

from merging.models.tensor_info import TensorInfo
from merging.sharing.export.weight_files import divide_into_shards


def sizes(**numbers: int) -> dict[str, TensorInfo]:
    return {name: TensorInfo((count,), torch.float32) for name, count in numbers.items()}


@pytest.mark.parametrize(
    ("limit", "groups"),
    [
        (1000, [["a", "b", "c", "d"]]),
        (120, [["a", "b"], ["c"], ["d"]]),
        (80, [["a"], ["b"], ["c"], ["d"]]),
        (4, [["a"], ["b"], ["c"], ["d"]]),  # each larger than the limit, the first one, too
        (60, [["a"], ["b"], ["c"], ["d"]]),
        (140, [["a", "b"], ["c"], ["d"]]),
        (180, [["a", "b"], ["c", "d"]]),
    ],
)
def test_files_hold_no_more_than_the_limit_and_none_is_empty(limit: int, groups: list[list[str]]) -> None:
    """Of 80, 40, 120 and 60 bytes."""
    infos = sizes(b=10, a=20, d=15, c=30)
    files = divide_into_shards(infos, "model.safetensors", limit)
    assert list(files.values()) == groups
    count = len(groups)
    names = [f"model-{place:05}-of-{count:05}.safetensors" for place in range(1, count + 1)]
    assert list(files) == (names if count > 1 else ["model.safetensors"])
