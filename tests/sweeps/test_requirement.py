"""The best point under a requirement, against plain arithmetic on counts."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from merging.base.errors import ParameterError
from merging.images.benchmarks.metrics import wilson
from merging.images.benchmarks.paired_scores import resample_accuracies
from merging.images.benchmarks.resampled_tasks import DRAWS
from merging.study.sweeps.requirement import (
    Requirement,
    describe_draws,
    find_best_point,
    is_uncertain,
    judge_points,
    parse_requirement,
)
from merging.study.sweeps.sweep_tables import average_rows

N = 40
COUNTS = {  # right ones of 40 images, by point and task: two in domain, two out of domain
    "low": {"digits": 20, "land": 24, "kana": 38, "greek": 34},
    "mid": {"digits": 28, "land": 28, "kana": 32, "greek": 32},
    "high": {"digits": 36, "land": 32, "kana": 16, "greek": 20},
}


def rows(counts: dict[str, dict[str, int]] = COUNTS) -> pd.DataFrame:
    """The table of a sweep of these points."""
    table = []
    for place, (point, tasks) in enumerate(counts.items()):
        for task, correct in tasks.items():
            inside = task in ("digits", "land")
            table.append(
                (0, point, "", "CPU", "choosing", place, task, correct, N, correct / N, *wilson(correct, N), inside)
            )
    columns = ["line", "point", "run", "device", "split", "x", "task", "correct", "n", "accuracy", "low", "high"]
    return pd.DataFrame(table, columns=[*columns, "in_domain"])


def table_under(text: str) -> pd.DataFrame:
    found = rows()
    return judge_points(
        found, average_rows(found), parse_requirement(text, ["digits", "land", "kana", "greek"]), {}
    ).set_index("point")


def test_each_point_is_judged_by_the_mean_over_the_required_tasks() -> None:
    out, inside = table_under("out=0.8"), table_under("in=0.8")
    assert out["required"].tolist() == pytest.approx([(38 + 34) / 80, 0.8, 36 / 80])
    assert out["meets"].tolist() == [True, True, False]  # at the requirement is enough
    assert inside["required"].tolist() == pytest.approx([44 / 80, 56 / 80, 68 / 80])
    assert inside["meets"].tolist() == [False, False, True]
    assert out["required_n"].tolist() == [2 * N] * 3
    assert out["required_low"].tolist() == out["out_low"].tolist()


def test_a_task_is_judged_by_its_own_accuracy_and_interval() -> None:
    kana = table_under("kana=0.9")
    assert kana["required"].tolist() == [38 / 40, 32 / 40, 16 / 40]
    assert (kana["required_low"].iloc[1], kana["required_high"].iloc[1]) == wilson(32, 40)
    assert kana["meets"].tolist() == [True, False, False] and kana["required_n"].tolist() == [N] * 3


def test_the_best_of_those_that_meet_it_or_else_the_nearest() -> None:
    def chosen(text: str, by: str) -> tuple[str, bool]:
        return find_best_point(table_under(text).reset_index(), by)

    assert chosen("out=0", "in_domain") == ("high", True)
    assert chosen("out=0.8", "in_domain") == ("mid", True)
    assert chosen("out=0.81", "in_domain") == ("low", True)
    assert chosen("out=0.95", "in_domain") == ("low", False)  # 90 % is nearest
    assert chosen("in=0.5", "h_score") == ("mid", True)  # 2·0.7·0.8 / 1.5 = 0.747; low has 0.683, high 0.588
    assert chosen("in=0.9", "h_score") == ("high", False)


def test_without_scores_out_of_domain_no_point_meets_a_bound_there() -> None:
    inside = rows()[rows()["in_domain"]]
    table = judge_points(inside, average_rows(inside), Requirement("out", 0.0), {})
    assert not table["meets"].any() and table["certainty"].isna().all()
    assert find_best_point(table, "h_score") == ("low", False)
    table = judge_points(inside, average_rows(inside), Requirement("in", 0.5), {})
    assert find_best_point(table, "h_score") == ("high", True)


def certainty(counts: dict[str, tuple[int, int]], at_least: float) -> float:
    """The certainty of a point with (right, n) images of tasks in domain, whose answers are not stored."""
    cells = [(0, "p", "", "CPU", "choosing", 0, task, k, n, k / n, 0, 1, True) for task, (k, n) in counts.items()]
    found = pd.DataFrame(cells, columns=rows().columns)
    return float(judge_points(found, average_rows(found), Requirement("in", at_least), {})["certainty"].iloc[0])


def test_certainty_is_the_share_of_all_draws_with_replacement() -> None:
    """Two tasks of three images: every one of the 3^3 draws of each is counted out."""
    images = ((1, 1, 0), (1, 0, 0))
    means = [
        (sum(first) / 3 + sum(second) / 3) / 2
        for first in product(images[0], repeat=3)
        for second in product(images[1], repeat=3)
    ]
    for at_least in (1 / 6, 1 / 3, 0.5, 2 / 3, 5 / 6):
        exact = sum(mean >= at_least - 1e-9 for mean in means) / len(means)
        spread = math.sqrt(exact * (1 - exact) / DRAWS)
        assert abs(certainty({"a": (2, 3), "b": (1, 3)}, at_least) - exact) < 4 * spread


def test_certainty_does_not_depend_on_other_points_or_the_order_of_tasks() -> None:
    assert certainty({"a": (30, 40), "b": (35, 50)}, 0.7) == certainty({"b": (35, 50), "a": (30, 40)}, 0.7)
    found = rows()
    alone = found[found["point"] == "mid"]
    requirement = Requirement("out", 0.8)
    assert (
        judge_points(alone, average_rows(alone), requirement, {})["certainty"].iloc[0]
        == table_under("out=0.8")["certainty"]["mid"]
    )
    twice = pd.concat([found, found.assign(line=1)])  # two recipes may begin at the same model
    both = judge_points(twice, average_rows(twice), requirement, {})
    assert both.groupby("point")["certainty"].nunique().tolist() == [1, 1, 1]
    assert both["certainty"].tolist()[:3] == table_under("out=0.8")["certainty"].tolist()


def test_certainty_at_the_ends() -> None:
    assert certainty({"a": (40, 40), "b": (40, 40)}, 1.0) == 1
    assert certainty({"a": (0, 40)}, 0.01) == 0
    assert 0.4 < certainty({"a": (32, 40), "b": (32, 40)}, 0.8) < 0.62


def test_certainty_has_the_draws_of_every_comparison_where_answers_are_stored() -> None:
    rng = np.random.default_rng(3)
    answers = {
        point: {task: rng.permutation((np.arange(N) < right) * 1.0) for task, right in COUNTS[point].items()}
        for point in ("low", "mid")
    }
    found, requirement = rows(), Requirement("out", 0.8)
    table = judge_points(found, average_rows(found), requirement, answers).set_index("point")
    draws = resample_accuracies(answers)
    for point in answers:
        mean = (draws[point]["kana"] + draws[point]["greek"]) / 2
        assert table["certainty"][point] == (mean >= 0.8 - 1e-12).mean()
    without = table_under("out=0.8")
    assert 0 < abs(table["certainty"]["mid"] - without["certainty"]["mid"]) < 0.02  # the same draws of other images
    assert table["certainty"]["high"] == without["certainty"]["high"]
    assert table["by_image"].to_dict() == {"low": True, "mid": True, "high": False}
    assert describe_draws(table.loc[["low", "mid"]]) == "10,000 resamples of the images (seed 0)"
    assert describe_draws(table) == "10,000 resamples of counts, as answers to images are missing or damaged (seed 0)"


def test_an_interval_that_reaches_to_both_sides_crosses() -> None:
    table = table_under("out=0.8")
    assert [is_uncertain(table.loc[point], Requirement("out", 0.8)) for point in table.index] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("out", "Write a requirement as out=0.8"),
        ("out=much", "Write a requirement as out=0.8"),
        ("out=80", "is a fraction in"),
        ("out=nan", "is a fraction in"),
        ("kanna=0.5", "Did you mean 'kana'"),
    ],
)
def test_other_text_is_refused(text: str, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        parse_requirement(text, ["kana"])
