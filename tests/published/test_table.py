"""Rows and the table: which figure stands beside a row, what it says, and how it is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merging.base.errors import RecipeError
from merging.methods import registry
from merging.methods.split_qkv import SPLIT_QKV
from merging.sharing.published.accuracy_verdicts import (
    AGREES,
    DIFFERS,
    NOT_COMPARABLE,
    REPRODUCED,
    WITHIN_SPLIT,
    TaskScore,
)
from merging.sharing.published.catalogue_parts import PACKED, SPLIT
from merging.sharing.published.choice import Choice, find_models, make_choice
from merging.sharing.published.comparison_table import MeasuredRow, PublishedTable, build_table
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.experiment_texts import (
    table_csv,
    table_data,
    table_markdown,
    table_rows,
    table_sentences,
    task_rows,
)
from merging.sharing.published.row_variants import (
    INDIVIDUAL,
    PRETRAINED,
    RowVariant,
    find_figures,
    find_printed_experts,
    find_reference_figures,
    list_variants,
)

EIGHT, DRIVE, SMOKE = (read_experiment(key) for key in ("clip-b32-8", "clip-b32-8-drive", "smoke"))
AVERAGING = [65.4, 62.6, 70.8, 76.9, 64.5, 54.9, 86.3, 50.9]
PLAIN = [63.2, 59.8, 60.7, 46.0, 31.6, 32.5, 48.2, 43.9]


def variant(key: str, one: Any = EIGHT) -> RowVariant:
    return {each.key: each for each in list_variants(one, make_choice(one, exemplars=64))}[key]


def figures(key: str, one: Any = EIGHT, exemplars: int = 64) -> list[tuple[str, float, str]]:
    used = next(iter(one.models.values()))
    pairs = find_figures(variant(key, one), one, used.tower, used.authors, exemplars)
    return [(each.figure.source, each.figure.printed.in_domain, each.why_not) for each in pairs]


def scored(one: Any, percents: list[float], n: int = 10_000) -> dict[str, TaskScore]:
    return {task.key: TaskScore(task.key, percent / 100, n) for task, percent in zip(one.tasks, percents, strict=True)}


def experts(one: Any, n: int = 10_000) -> MeasuredRow:
    used = next(iter(one.models.values()))
    return MeasuredRow(INDIVIDUAL, scored(one, list(find_printed_experts(one, used.tower, used.authors).values()), n))


def made(one: Any, *rows: MeasuredRow, images: str = "all", **options: Any) -> PublishedTable:
    choice: Choice = make_choice(one, images=images, **options.pop("chosen", {}))
    return build_table(one, choice, find_models(one, choice), rows, device="one CPU", **options)


# Rows


def test_rows_that_care_for_the_grouping_run_twice_and_meet_a_source_that_did_the_same() -> None:
    keys = [each.key for each in list_variants(EIGHT, make_choice(EIGHT))]
    assert keys[:5] == [
        "averaging",
        "task_arithmetic",
        "ties",
        "lwptv_task_arithmetic/packed",
        "lwptv_task_arithmetic/split",
    ]
    assert figures("iso_c/split")[0] == ("FusionBench", 82.8, "")
    assert figures("iso_c/packed")[0] == ("FusionBench", 82.8, "the source merged q, k and v as three")
    assert figures("lwptv_ties/packed", DRIVE)[0] == ("LwPTV, Tables 2 and 5", 72.7, "")
    assert figures("lwptv_ties/split", DRIVE)[0][2] == "the source merged q, k and v as one matrix"
    assert figures("wudi_mean/split")[0][:2] == ("FusionBench", 84.5)


def test_a_figure_on_other_experts_is_never_compared() -> None:
    assert figures("averaging")[0] == ("FusionBench", 66.5, "")
    assert ("LwPTV, Tables 2 and 5", 65.8, "on other experts (Ilharco et al.)") in figures("averaging")
    assert figures("averaging", DRIVE)[0] == ("LwPTV, Tables 2 and 5", 65.8, "")
    assert figures("drm_h/packed", DRIVE)[0][2] == "on other experts (Chaichana et al.)"
    assert figures("averaging", SMOKE, 0)[0][2] == "the figure is for the papers' eight tasks"


def test_values_and_exemplars_that_a_source_does_not_share_are_said() -> None:
    ties = {source: why for source, _, why in figures("ties", DRIVE)}
    assert ties["LOT, Tables 1 and 2"] == "the source does not state all values"
    assert figures("lot", DRIVE)[0] == ("LOT, Tables 1 and 2", 82.7, "")
    assert figures("lot", DRIVE, 8)[0] == ("LOT, Table 6", 78.7, "")


def test_a_pretrained_model_meets_a_source_that_scored_the_same_images() -> None:
    adapters = read_experiment("clip-b16-8-lora")
    used = adapters.models["hub"]
    first = find_reference_figures(PRETRAINED, adapters, used.tower, used.authors)[0]
    assert (first.figure.source, first.figure.printed.in_domain, first.why_not) == ("FusionBench", 55.3, "")


def test_a_recipe_has_the_row_s_values_and_exemplars() -> None:
    recipe = variant("lot", read_experiment("clip-l14-8")).build_recipe("p", {"a": "x"}, 16, 3)
    assert recipe.merge.params.values()["scaling"] == 1.5 and recipe.exemplars.values() == {"per_task": 16, "seed": 3}
    assert variant("wudi_mean/packed").build_recipe("p", {"a": "x"}).merge.params.values()["others"] == "mean"
    assert variant("lwptv_ties/packed").build_recipe("p", {}).count_dead_params
    assert variant("ties").title == "Ties" and variant("iso_c/split").title == "Iso-C (q, k, v split)"


def test_rows_split_qkv_where_a_method_can() -> None:
    row = variant("iso_c/split")
    if SPLIT_QKV in registry.find_merge("iso_c").params.bounds():
        assert row.build_recipe("p", {}).merge.params.values()[SPLIT_QKV] is True
        assert variant("iso_c/packed").build_recipe("p", {}).merge.params.values()[SPLIT_QKV] is False
    else:
        with pytest.raises(RecipeError, match="none of its methods can split q, k and v"):
            row.build_recipe("p", {})
    assert (row.grouping, variant("iso_c/packed").grouping) == (SPLIT, PACKED)


# The table


def test_a_whole_table_is_reproduced_and_says_where_from() -> None:
    table = made(EIGHT, MeasuredRow(PRETRAINED, scored(EIGHT, PLAIN)), experts(EIGHT),
                 MeasuredRow(variant("averaging"), scored(EIGHT, AVERAGING), run="abc"))  # fmt: skip
    assert [row.in_domain.verdict.word for row in table.rows] == [REPRODUCED] * 3
    assert [row.in_domain.printed for row in table.rows] == [48.2, 90.3, 66.5]
    assert table.gate.passed and "8 of 8 experts" in table_sentences(table)[1]
    assert [line.printed for line in table.rows[2].tasks] == AVERAGING and table.rows[2].run == "abc"


def test_other_experts_are_never_reproduced() -> None:
    own = experts(EIGHT).scores | scored(EIGHT, [60.0] * 8)
    table = made(EIGHT, MeasuredRow(INDIVIDUAL, own), MeasuredRow(variant("averaging"), scored(EIGHT, AVERAGING)))
    assert [row.in_domain.verdict.word for row in table.rows] == [NOT_COMPARABLE] * 2
    assert table.rows[1].in_domain.verdict.reason == "other experts" and "Other experts" in table.notes[0]
    pretrained = made(EIGHT, MeasuredRow(PRETRAINED, scored(EIGHT, PLAIN)), MeasuredRow(INDIVIDUAL, own)).rows[0]
    assert pretrained.in_domain.verdict.word == REPRODUCED  # it has no experts
    alone = made(EIGHT, MeasuredRow(variant("averaging"), scored(EIGHT, AVERAGING)))
    assert alone.rows[0].in_domain.verdict.word == NOT_COMPARABLE  # their own accuracies are not known


def test_a_pretrained_model_from_the_folder_of_other_experts_is_not_compared(tmp_path: Path) -> None:
    own = MeasuredRow(INDIVIDUAL, scored(EIGHT, [60.0] * 8))
    pretrained = MeasuredRow(PRETRAINED, scored(EIGHT, PLAIN))
    row = made(EIGHT, pretrained, own, chosen={"experts": str(tmp_path)}).rows[0]
    assert (row.in_domain.verdict.word, row.in_domain.verdict.reason) == (NOT_COMPARABLE, "other experts")


def test_a_drawn_part_agrees_and_another_split_is_within_it() -> None:
    part = made(
        EIGHT, experts(EIGHT, 1000), MeasuredRow(variant("averaging"), scored(EIGHT, AVERAGING, 1000)), images="1000"
    )
    assert part.rows[1].in_domain.verdict.text == f"{AGREES}: on 1,000 of each"
    papers = [65.3, 63.4, 71.4, 71.7, 64.2, 52.8, 87.5, 50.1]
    split = made(
        DRIVE, experts(DRIVE), MeasuredRow(variant("averaging", DRIVE), scored(DRIVE, [x + 1 for x in papers]))
    )
    assert split.rows[1].in_domain.verdict.word == WITHIN_SPLIT
    assert "SUN397, RESISC45, EuroSAT" in split.rows[1].in_domain.verdict.reason
    far = made(DRIVE, experts(DRIVE), MeasuredRow(variant("averaging", DRIVE), scored(DRIVE, [x + 3 for x in papers])))
    assert far.rows[1].in_domain.verdict.word == DIFFERS


def test_newer_files_than_the_catalogue_s_are_not_judged() -> None:
    table = made(
        EIGHT, experts(EIGHT), MeasuredRow(variant("averaging"), scored(EIGHT, AVERAGING)), latest=["tanganke/dtd"]
    )
    assert {row.in_domain.verdict.reason for row in table.rows} == {"not the catalogue's files"}
    assert "not the catalogue's files: tanganke/dtd" in table.notes


def test_references_of_other_tasks_are_compared_over_those_tasks() -> None:
    table = made(SMOKE, MeasuredRow(PRETRAINED, scored(SMOKE, [48.2, 46.0])), experts(SMOKE))
    assert [(row.in_domain.printed, row.in_domain.computed) for row in table.rows] == [
        (pytest.approx(47.1), True), (pytest.approx(99.3), True),
    ]  # fmt: skip
    assert [row.in_domain.verdict.word for row in table.rows] == [REPRODUCED] * 2
    many = read_experiment("clip-b32-20")
    assert made(many, experts(many)).rows[0].in_domain.verdict.word == REPRODUCED


def test_out_of_domain_is_compared_over_the_same_sets_with_its_chance() -> None:
    chosen = {"outside": True}
    outside = {one.key: TaskScore(one.key, 0.5, 10_000) for one in DRIVE.outside if one.key != "imagenet"}
    row = MeasuredRow(variant("task_arithmetic", DRIVE), scored(DRIVE, [69.1] * 8) | outside)
    table = made(DRIVE, experts(DRIVE), row, chosen=chosen)
    out = table.rows[1].out_of_domain
    printed = [76.3, 41.9, 28.5, 63.9, 26.3, 49.4, 55.8, 9.0, 75.4, 54.0, 53.4, 87.8]
    assert out is not None and out.printed == pytest.approx(sum(printed) / 12) and out.computed
    assert table.rows[1].h_score == (pytest.approx(2 / (1 / 69.1 + 1 / 50)), pytest.approx(59.218, abs=0.001))
    chances = {line.task: line.chance for line in table.rows[1].tasks if line.chance}
    assert chances == {"kmnist": 10.0, "pcam": 50.0, "rendered_sst2": 50.0}
    assert "out of domain [95%]" in table_rows(table)[0] and "H-score" in table_rows(table)[0]


def test_the_change_to_the_row_above_is_of_the_same_images() -> None:
    generator = np.random.default_rng(0)
    first = {task.key: generator.random(500) < 0.6 for task in SMOKE.tasks}
    better = {task: right | (generator.random(500) < 0.2) for task, right in first.items()}
    rows = [MeasuredRow(variant(key, SMOKE), scored(SMOKE, [60.0] * 2), right) for key, right in
            (("averaging", first), ("task_arithmetic", better))]  # fmt: skip
    above, below = made(SMOKE, *rows).rows
    gain = np.mean([better[task].mean() - first[task].mean() for task in first]) * 100
    assert above.change is None and below.change is not None
    assert below.change[0] == pytest.approx(gain) and 0 < below.change[1] < gain < below.change[2]
    shorter = MeasuredRow(rows[1].row, rows[1].scores, {task: right[:9] for task, right in better.items()})
    assert made(SMOKE, rows[0], shorter).rows[1].change is None


# How it is written


def test_every_form_of_the_table_has_the_same_numbers() -> None:
    rows = [experts(EIGHT), *(MeasuredRow(variant(key), scored(EIGHT, AVERAGING)) for key in ("averaging", "pcb"))]
    table = made(EIGHT, *rows)
    data = json.loads(json.dumps(table_data(table)))
    assert [row["in_domain"]["verdict"] for row in data["rows"]] == [REPRODUCED, REPRODUCED, NOT_COMPARABLE]
    lines = list(csv.DictReader(table_csv(table).splitlines()))
    assert len(lines) == 3 * 9
    assert float(lines[9]["ours"]) == data["rows"][1]["in_domain"]["ours"] == pytest.approx(66.5375)
    assert table_rows(table)[2][1:5] == ("66.5 [66.2, 66.9]", "66.5", "+0.0", "reproduced")
    assert table_rows(table)[3][2:5] == ("(75.8)", "-9.3", "not comparable: on other experts (Ilharco et al.)")
    assert task_rows(table)[1][:2] == ("Each expert on its own task", "SUN397")
    text = table_markdown(table)
    assert "reproduced" in text and text.count("\n|") == 4 + 1 + 25 + 1 and "one CPU" in text.replace("\\", "")
