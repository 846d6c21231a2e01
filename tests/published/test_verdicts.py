"""The gate and every verdict, each with a case that is made for it."""

from __future__ import annotations

import math

import pytest

from merging.sharing.published.accuracy_verdicts import (
    AGREES,
    DIFFERS,
    NOT_COMPARABLE,
    REPRODUCED,
    WITHIN_SPLIT,
    Average,
    ExpertGate,
    RowVerdict,
    TaskScore,
    average_scores,
    is_expectation_met,
    judge_average,
    judge_experts,
)

PASSED, FAILED = ExpertGate(True, True, ("a",), ()), ExpertGate(False, True, (), ("a",))
OURS = Average(66.0, 65.8, 66.2, 80_000)
BY_TASK = {"A": (60.0, 61.0), "B": (70.0, 73.0), "C": (50.0, 49.5), "D": (80.0, 82.0)}


def scores(**percents: float) -> dict[str, TaskScore]:
    return {task: TaskScore(task, percent / 100, 10_000) for task, percent in percents.items()}


@pytest.mark.parametrize(("printed", "word"), [(66.0, REPRODUCED), (66.5, REPRODUCED), (65.5, REPRODUCED),
                                               (66.51, DIFFERS), (65.49, DIFFERS)])  # fmt: skip
def test_the_interval_is_widened_by_three_tenths_of_a_point(printed: float, word: str) -> None:
    assert judge_average(OURS, printed, experts=PASSED).word == word


def test_on_a_part_of_the_images_reproduced_becomes_agrees() -> None:
    decided = judge_average(OURS, 66.1, experts=PASSED, images=1000)
    assert (decided.word, decided.reason) == (AGREES, "on 1,000 of each")
    assert judge_average(OURS, 66.1, experts=PASSED) == RowVerdict(REPRODUCED, "", pytest.approx(-0.1))


def test_another_split_explains_a_point_and_a_half() -> None:
    on_another = {"experts": PASSED, "other_split": ["EuroSAT"]}
    assert judge_average(OURS, 67.5, **on_another).word == WITHIN_SPLIT
    assert judge_average(OURS, 67.51, **on_another).word == DIFFERS
    assert judge_average(OURS, 66.0, **on_another).word == WITHIN_SPLIT  # they are not the same images
    assert "EuroSAT" in judge_average(OURS, 67.0, **on_another).reason
    assert (
        judge_average(OURS, 67.5, experts=PASSED, images=500).word == WITHIN_SPLIT
    )  # a drawn part is another split, too
    assert judge_average(OURS, 67.5, experts=PASSED).word == DIFFERS


def test_what_differs_names_the_three_tasks_that_differ_most() -> None:
    decided = judge_average(OURS, 70.0, experts=PASSED, by_task=BY_TASK)
    assert decided.word == DIFFERS
    assert decided.tasks == ("B (-3.0)", "D (-2.0)", "A (-1.0)")
    assert decided.text == "differs: most on B (-3.0), D (-2.0), A (-1.0)"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"experts": FAILED}, "other experts"),
        ({"experts": ExpertGate(False, False)}, "the experts are not known to be the same"),
        ({"experts": PASSED, "why_not": "other wording"}, "other wording"),
        ({"experts": FAILED, "why_not": "other wording"}, "other wording"),
    ],
)
def test_what_is_not_comparable_says_why_and_is_never_reproduced(options, reason: str) -> None:
    decided = judge_average(OURS, 66.0, **options)
    assert (decided.word, decided.reason, decided.difference) == (NOT_COMPARABLE, reason, 0.0)
    assert not decided.is_judged


def test_without_a_printed_value_nothing_is_compared() -> None:
    assert judge_average(OURS, None, experts=PASSED) == RowVerdict(NOT_COMPARABLE, "no source prints it")
    assert judge_average(OURS, 66.0, experts=None).word == REPRODUCED  # the pretrained model has no experts


# The gate


def test_seven_of_eight_experts_must_be_within_a_point() -> None:
    printed = dict.fromkeys("abcdefgh", 90.0)
    seven = scores(**dict.fromkeys("abcdefg", 91.0), h=80.0)
    assert judge_experts(seven, printed, whole=True) == ExpertGate(True, True, tuple("abcdefg"), ("h",))
    six = seven | scores(a=91.01)
    decided = judge_experts(six, printed, whole=True)
    assert (decided.passed, decided.far) == (False, ("a", "h"))
    assert decided.text == "Other experts: only 6 of 8 experts are within 1 point of their printed accuracy (not a, h)."


@pytest.mark.parametrize(("tasks", "needed"), [(2, 2), (8, 7), (14, 13), (20, 18)])
def test_the_gate_asks_the_same_share_of_any_number_of_tasks(tasks: int, needed: int) -> None:
    names = [f"t{k}" for k in range(tasks)]
    for near in (needed - 1, needed):
        own = {name: TaskScore(name, 0.9 if k < near else 0.5, 1000) for k, name in enumerate(names)}
        assert judge_experts(own, dict.fromkeys(names, 90.0), whole=True).passed == (near == needed)


def test_on_a_part_an_expert_is_near_if_its_interval_is() -> None:
    few = {"a": TaskScore("a", 0.875, 1000)}  # 85.3 to 89.4
    assert (
        judge_experts(few, {"a": 90.0}, whole=False).passed and not judge_experts(few, {"a": 90.0}, whole=True).passed
    )
    assert not judge_experts(few, {"a": 90.5}, whole=False).passed
    near, far = (judge_experts(few, {"a": printed}, whole=False).text for printed in (90.0, 90.5))
    reaches = "of 1 experts have an interval that reaches to within 1 point of their printed accuracy"
    assert near == f"The source's experts: 1 {reaches}." and far == f"Other experts: only 0 {reaches} (not a)."


def test_experts_whose_accuracies_nobody_prints_do_not_pass() -> None:
    decided = judge_experts(scores(a=90.0), {}, whole=True)
    assert (decided.passed, decided.known) == (False, False) and "No source prints" in decided.text
    assert not judge_experts({}, {"a": 90.0}, whole=True).passed


# Averages, and what is expected


def test_an_average_is_unweighted_and_its_interval_that_of_independent_means() -> None:
    one = average_scores([TaskScore("a", 0.6, 100), TaskScore("b", 0.8, 10_000)])
    assert one.mean == pytest.approx(70.0) and one.n == 10_100
    alone = average_scores([TaskScore("a", 0.6, 100)])
    assert one.high - one.low == pytest.approx((alone.high - alone.low) / 2, rel=0.01)  # the other one is exact
    low, high = TaskScore("a", 0.6, 100).interval
    assert (low, high) == pytest.approx((50.20, 69.06), abs=0.01)


def test_an_expectation_fails_only_on_a_judged_row_that_differs() -> None:
    fine = [RowVerdict(word) for word in (REPRODUCED, AGREES, WITHIN_SPLIT, NOT_COMPARABLE)]
    assert is_expectation_met(fine, REPRODUCED) and is_expectation_met([], REPRODUCED)
    assert not is_expectation_met([*fine, RowVerdict(DIFFERS)], REPRODUCED)
    with pytest.raises(ValueError, match="not agrees"):
        is_expectation_met(fine, AGREES)
    assert not math.isnan(OURS.mean)
