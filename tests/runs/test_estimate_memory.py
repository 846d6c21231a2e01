"""The estimate's memory of several layers at once against a merge in a process of its own."""

from __future__ import annotations

from pathlib import Path

import measured_memory
import pytest
import torch

from merging.base import threads as at_once
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import estimate_run
from merging.study.runs.opened_recipe import open_inputs

BASE = 6 << 30  # what a merge of ViT-L/14 may take
SLACK = 4.0  # an estimate is for the worst order of layers, none of which share a moment, and a chain with an edit


def estimated(files: list[Path], merge: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> int:
    experts = {path.stem: str(path) for path in files[1:]}
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        return estimate_run(open_inputs(Recipe.build(merge, {}, [], str(files[0]), experts))).anonymous_bytes


@measured_memory.ONLY_LINUX
@pytest.mark.full
def test_a_block_of_vit_l_takes_about_what_the_estimate_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = measured_memory.tower_files(tmp_path, 8, width=1024, layers=1, patch=14, tokens=257, out=768)
    expect = estimated(files, "iso_c", 2, monkeypatch)
    growth = measured_memory.growth(["iso_c"], files, tmp_path / "merged", threads=2)
    assert growth < expect < SLACK * growth
    assert expect < BASE


def test_more_layers_at_once_take_more_memory_within_the_budget(
    tiny_benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [Path(tiny_benchmark.pretrained), *map(Path, tiny_benchmark.experts.values())]
    one, two, many = (estimated(files, "drm", threads, monkeypatch) for threads in (1, 2, 1000))
    assert one < two <= 2 * one < many
    monkeypatch.setattr(at_once, "MAX_PIECES_BYTES", two)
    assert estimated(files, "drm", 1000, monkeypatch) == two
    monkeypatch.setattr(at_once, "free_memory", lambda: 2 * one + 2)
    assert estimated(files, "drm", 1000, monkeypatch) == one + 1
