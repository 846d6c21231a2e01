"""Factors set by hand on pages: the table of rules on Merge, a run's masks and comparison, its title."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_harness import words

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


def said(at: Any) -> str:
    """All text on the page, without the backslashes that keep it from being markup."""
    return words(at).replace("\\", "")


@pytest.fixture
def runs(library: Path, tmp_path: Path) -> list[Run]:
    """Runs in the store that pages read: one put block 0 back in every expert, the others do more."""
    benchmark, store = Benchmark.load(library), Store(tmp_path / "store", libraries=())
    return [
        execute(
            Recipe.build(
                "task_arithmetic", {}, [("manual", {"rules": rules})], benchmark.pretrained, benchmark.experts
            ),
            store,
            benchmark=benchmark,
            context=Context(device="cpu"),
        )
        for rules in ("b0=0", "b0=0+r.norm_scale=2+s.output=0.5", "b0=0+r.norm_scale=3+s.output=0.5")
    ]


def test_the_rules_of_a_link_are_a_table(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="manual:b0/r.linear=0.5+t.*.ln_1.*=0,when=after;ties")
    assert not at.exception
    assert not at.error
    table = next(frame.value for frame in at.dataframe if "blocks" in frame.value)
    assert table["factor"].tolist() == [0.5, 0.0]
    assert table["blocks"].tolist() == ["0", ""]
    assert [list(words) for words in table["tensors"]] == [[], ["*.ln_1.*"]]
    assert "rules (block 0, linear × 0.5; *.ln_1.* × 0)" in said(at)
    assert "--edit 'manual:b0/r.linear=0.5+t.*.ln_1.*=0,when=after'" in " ".join(code.value for code in at.code)


@pytest.mark.parametrize(
    ("chain", "problem"),
    [
        ("manual:b0=0+b9=0;ties", "Rule 2 (b9=0) matches no tensor in block 9"),
        ("manual:b0=0,when=after;lwptv;ties", "so it is the last edit; move it to the end"),
        ("manual:e.nobody=0;ties", "names 'nobody', and the experts are"),
    ],
)
def test_rules_that_cannot_be_run_say_why(open_app: Any, library: Path, chain: str, problem: str) -> None:
    at = open_app("merge", library, chain=chain)
    assert not at.exception
    assert problem in at.error[0].value.replace("\\", "")


def test_a_link_with_a_wrong_rule_is_refused_in_words(open_app: Any, library: Path) -> None:
    at = open_app("merge", library, chain="manual:r.norm=0;ties")
    assert not at.exception
    assert "rule 1: there is no role 'norm'. Did you mean" in at.warning[0].value.replace("\\", "")


def test_masks_say_what_was_put_back_and_count_the_weights(open_app: Any, library: Path, runs: list[Run]) -> None:
    at = open_app("masks", library, run=runs[0].id)
    assert not at.exception
    put_back = sum(".0." in name for name in runs[0].table("tensors")["tensor"])
    assert f"factors were set by hand: **{put_back} of" in said(at)
    assert at.segmented_control(key="source_by_hand").value == "weights"


def test_comparing_names_rules_in_full_where_words_are_the_same(open_app: Any, library: Path, runs: list[Run]) -> None:
    at = open_app("compare", library, run=runs[1].id, run_b=runs[2].id)
    assert not at.exception
    shown = " ".join(str(frame.value.to_dict()) for frame in [*at.dataframe, *at.table]).replace("\\", "")
    assert all(f"b0=0+r.norm_scale={factor}+s.output=0.5" in shown for factor in (2, 3))
    assert runs[0].title == "manual(block 0 × 0) → task_arithmetic"
