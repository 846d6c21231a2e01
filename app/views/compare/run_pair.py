"""Two runs on the same images: the Compare page's tables, from stored answers and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import measurements, page_data
from app.session import run_styles
from merging.images.benchmarks.answers import compare_scored
from merging.images.benchmarks.metrics import summary_of, wilson
from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.answers import SplitAnswers

BOTH_IN, ONLY_A, ONLY_B, BOTH_OUT = "In domain", "In domain of A only", "In domain of B only", "Out of domain"
DOMAIN_GROUPS = {(True, True): BOTH_IN, (True, False): ONLY_A, (False, True): ONLY_B, (False, False): BOTH_OUT}
AVERAGES = "Averages"


@dataclass(frozen=True)
class RunPair:
    """Two runs A and B."""

    a: Run
    b: Run

    @property
    def runs(self) -> tuple[Run, Run]:
        """A and B."""
        return self.a, self.b

    @property
    def labels(self) -> tuple[str, str]:
        """The names of A and B in charts; equal titles are distinguished by the runs' ids."""
        has_same_name = self.a.name == self.b.name and self.a.id != self.b.id
        label_a, label_b = (f"{run.name} ({run.id[:6]})" if has_same_name else run.name for run in self.runs)
        return label_a, label_b

    @property
    def sides(self) -> dict[str, tuple[str, str]]:
        """The options of charts that name and color A and B."""
        return {"labels": self.labels, "colors": run_styles.side_colors(self.a.id, self.b.id)}

    @property
    def runs_without_answers(self) -> list[Run]:
        """The runs whose answers to each image are not stored, each once."""
        return list({run.id: run for run in self.runs if page_data.answers(run) is None}.values())

    @property
    def is_reference(self) -> bool:
        """Whether B is not a merge but a reference model; its domain is that of A."""
        return self.b.kind != "merge"

    @property
    def has_same_domain(self) -> bool:
        """Whether the same data sets are in domain for both."""
        return self.is_reference or set(self.a.experts) == set(self.b.experts)

    def domain_group(self, task: str) -> str:
        """The name of a data set's group, which states for which of the runs it is in domain."""
        is_inside = task in self.a.experts
        return DOMAIN_GROUPS[is_inside, is_inside if self.is_reference else task in self.b.experts]


def compare_scores(pair: RunPair) -> pd.DataFrame | None:
    """One row for each average and data set, for ``compare_scores``; None if the two runs cannot be compared.

    Intervals need the answers of both; without them they are NaN.
    """
    scores_a, scores_b = page_data.scores(pair.a), page_data.scores(pair.b)
    if scores_a is None or scores_b is None or pair.a.benchmark != pair.b.benchmark:
        return None
    tasks = [task for task in scores_a["task"] if task in set(scores_b["task"])]
    groups = _common_groups(pair, tasks)
    table = _compare_runs(pair.a.id, pair.b.id, page_data.current_digest(), groups, pair.has_same_domain, pair)
    table = table.assign(
        title=_scope_titles(pair, table), group=[_group_of_scope(pair, scope) for scope in table["scope"]]
    )
    for side, scores in (("a", scores_a), ("b", scores_b)):
        columns = (scores[name].tolist() for name in ("task", "accuracy", "correct", "n"))
        rows = {task: (accuracy, correct, n) for task, accuracy, correct, n in zip(*columns, strict=True)}
        table[f"score_{side}"] = [_score_with_interval(rows, scope, groups) for scope in table["scope"]]
    order = {AVERAGES: 0, BOTH_IN: 1, ONLY_A: 2, ONLY_B: 3, BOTH_OUT: 4}
    return table.sort_values("group", key=lambda group: group.map(order), kind="stable").reset_index(drop=True)


Groups = tuple[tuple[str, ...], tuple[str, ...]]  # data sets that are in domain for both, and for neither


def _common_groups(pair: RunPair, tasks: Sequence[str]) -> Groups:
    inside, outside = (tuple(task for task in tasks if pair.domain_group(task) == side) for side in (BOTH_IN, BOTH_OUT))
    return inside, outside


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _compare_runs(
    id_a: str, id_b: str, digest: str, groups: Groups, with_h_score: bool, _pair: RunPair
) -> pd.DataFrame:
    """The differences B minus A; without the answers of both from accuracies alone, without intervals."""
    scored_b, scored_a = page_data.scored(_pair.b), page_data.scored(_pair.a)
    assert scored_a is not None and scored_b is not None  # only evaluated runs are compared
    table = compare_scored(scored_b, scored_a, *groups)
    columns = {"over": "scope", "accuracy": "b", "reference": "a"}
    table = table.rename(columns=columns)[["scope", "a", "b", "difference", "low", "high", "p", "n"]]
    return table if with_h_score else table[table["scope"] != H_SCORE]


def _group_of_scope(pair: RunPair, scope: str) -> str:
    return AVERAGES if scope in (IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE) else pair.domain_group(scope)


def _scope_titles(pair: RunPair, table: pd.DataFrame) -> list[str]:
    suffix = "" if pair.has_same_domain else " of both"
    averages = {IN_DOMAIN: f"Mean in domain{suffix}", OUT_OF_DOMAIN: f"Mean out of domain{suffix}", H_SCORE: "H-score"}
    return [(averages | measurements.titles_by_task()).get(scope, scope) for scope in table["scope"]]


def _score_with_interval(
    rows: Mapping[str, tuple[float, int, int]], scope: str, groups: Groups
) -> tuple[float, float, float]:
    """A score of one run with the ends of its interval; those of an H-score are NaN.

    ``rows`` are {data set: accuracy, number of right answers, n}; ``scope`` is an average (``IN_DOMAIN``,
    ``OUT_OF_DOMAIN``, ``H_SCORE``) or a data set.
    """
    if scope not in (IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE):
        accuracy, correct, n = rows[scope]
        return accuracy, *wilson(correct, n)
    scored = [(task, rows[task][0], rows[task][2]) for group in groups for task in group]
    if scope == H_SCORE:
        return summary_of(scored, groups[0], {}).h_score, math.nan, math.nan
    summary = summary_of(scored, groups[1] if scope == OUT_OF_DOMAIN else groups[0], {})  # as the data sets in domain
    return summary.in_domain, summary.in_low, summary.in_high


# Image by image


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _compare_images(id_a: str, id_b: str, digest: str, _pair: RunPair) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    from merging.study.analysis.agreement import CELLS, compute_cells
    from merging.study.measurements.features import image_name

    answers_a, answers_b, frames = page_data.answers(_pair.a), page_data.answers(_pair.b), []
    assert answers_a is not None and answers_b is not None  # called only with both
    for task in (task for task in answers_a if task in answers_b):
        a, b = answers_a[task], answers_b[task]
        names = np.array(page_data.benchmark().find_task(task).class_names, dtype=object)
        share = compute_cells(a.is_right, b.is_right, a.models == b.models)
        margins: list[Any] = [side.margin.mean(axis=0) for side in (a, b)]
        frame = pd.DataFrame(dict(zip(CELLS, share, strict=True)))
        frame.insert(0, "image", [image_name(task, number) for number in range(len(a.labels))])
        words_by_side = [
            [prediction_in_words(side, number, names) for number in range(len(a.labels))] for side in (a, b)
        ]
        frames.append(
            frame.assign(
                task=task, truth=names[a.labels], predicted_a=words_by_side[0], predicted_b=words_by_side[1],
                margin_a=margins[0], margin_b=margins[1], single=len(a.models) == len(b.models) == 1,
            )
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def prediction_in_words(answers: SplitAnswers, index: int, names: Any) -> str:
    """A run's prediction for image ``index``; for several models, the number of right ones and the commonest error."""
    import numpy as np

    model_count = len(answers.models)
    predicted, votes = np.unique(answers.predicted[:, index], return_counts=True)
    votes_by_class = {str(names[name]): int(vote) for name, vote in zip(predicted, votes, strict=True)}
    if model_count == 1:
        return next(iter(votes_by_class))
    right_count = votes_by_class.pop(truth := str(names[answers.labels[index]]), 0)
    commonest_error = max(votes_by_class, key=lambda name: votes_by_class[name], default="")
    if not commonest_error or not right_count:
        return (
            f"{truth} (all {model_count})"
            if right_count
            else f"{commonest_error} ({votes_by_class[commonest_error]} of {model_count})"
        )
    return f"{truth} ({right_count}), {commonest_error} ({votes_by_class[commonest_error]} of {model_count})"


def build_image_rows(pair: RunPair) -> pd.DataFrame:
    """One row for each image of the reporting half: data set, class, both predictions, and which of them is right.

    ``both``, ``only_a``, ``only_b`` and ``neither`` are 0 or 1, or shares if a run has several models. Margins are the
    cosine of the right class minus the largest other one; ``single`` is whether each run has one answer.
    """
    return _compare_images(pair.a.id, pair.b.id, page_data.current_digest(), pair)
