"""The best point: controls of its criterion, a score and a required accuracy; and its lead over the other points."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import streamlit as st

from app import page_text
from app.reading import measurements, page_data, sweeps
from app.reading.sweeps import SweepResults
from app.session import address, view_state
from app.widgets import page_parts
from merging.study.sweeps import requirement as requirements
from merging.study.sweeps.best_points import BestComparison, compare_with_best, name_points
from merging.study.sweeps.requirement import BEST_COLUMNS, IN, OUT, Requirement
from viz.figure_text import percent, plural

NO_REQUIREMENT = "nothing"
DOMAIN_LABELS = {"out of domain": OUT, "in domain": IN}
CRITERION_COLUMNS = {"H-score": BEST_COLUMNS["h"], "in domain": BEST_COLUMNS[IN]}
DEFAULT_MINIMUM = 80  # percent, the field's default


class BestPoint(NamedTuple):
    """The best point of a sweep, the averages of all points, and the requirement that the best point has to meet.

    ``averages`` has one row for each point and recipe. ``requirement_name`` is the task or domain as on the page.
    """

    averages: pd.DataFrame
    point_name: str
    is_met: bool = True
    requirement: Requirement | None = None
    requirement_name: str = ""

    @property
    def required_value(self) -> tuple[str, float] | None:
        """The column or task whose chart shades insufficient values, and its minimum; None without a requirement."""
        if self.requirement is None:
            return None
        subject, minimum = self.requirement.subject, self.requirement.at_least
        return requirements.GROUP_COLUMNS[subject][0] if subject in requirements.GROUP_COLUMNS else subject, minimum

    def row(self, point: str) -> pd.Series:
        """The averages of a point."""
        return self.averages[self.averages["point"] == point].iloc[0]

    @property
    def note(self) -> str:
        """A sentence on the requirement for the charts' notes; empty without one."""
        if self.requirement is None:
            return ""
        failing = int((~self.averages.drop_duplicates("point")["meets"]).sum())
        return (
            f" Subject to {self.requirement_name} at least {percent(self.requirement.at_least, 0)}: "
            f"{plural(failing, 'point')} below it, in white or crossed out. "
            f"{requirements.describe_draws(self.averages)}, with replacement."
        )


def pick_best(results: SweepResults, is_live: bool) -> BestPoint:
    """Draw the controls and the lead of the best point by the chosen criterion and requirement; returns that point.

    While points are computed (``is_live``), they are not compared.
    """
    best_point, column = _pick_criterion(results)
    if is_live or not best_point.is_met:
        return best_point
    requirement, averages, name = best_point.requirement, best_point.averages, best_point.point_name
    condition = requirement and (requirement.subject, requirement.at_least)
    comparison = _compare_points(results.sweep.id, tuple(results.points), name, column, condition, results, averages)
    sentences = comparison.in_words(
        name_points(averages, sweeps.recipe_titles(results.sweep)[: len(results.sweep.lines)])
    ).replace(" %", "%")
    st.markdown(page_text.safe_text(sentences, 1000))
    if not comparison.others:
        return best_point
    return best_point._replace(averages=averages.merge(pd.DataFrame(comparison.others), "left", "point"))


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Comparing the points …")
def _compare_points(
    sweep: str, points: tuple[str, ...], best: str, column: str, requirement: tuple[str, float] | None,
    _results: SweepResults, _averages: pd.DataFrame,
) -> BestComparison:  # fmt: skip
    return compare_with_best(_results.sweep, _results.tasks, _averages, best, column, _results.answers)


def _pick_criterion(results: SweepResults) -> tuple[BestPoint, str]:
    """Draw the controls; returns the best point and the column of the score by which it is the best."""
    has_both_domains = results.averages["h_score"].notna().any()  # else no tasks out of domain
    titles = measurements.titles_by_task()
    tasks = {titles.get(str(key), str(key)): str(key) for key in results.task_keys}
    subjects = {NO_REQUIREMENT: ""} | (DOMAIN_LABELS if has_both_domains else {"in domain": IN}) | tasks
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        criterion = "in domain"
        if has_both_domains:
            criterion = page_parts.pick_button("Best by", CRITERION_COLUMNS, address.CRITERION, on_change=_choose_best)
        name = st.selectbox(
            "Subject to", subjects, key=address.CONSTRAINT, bind=address.BIND, width=240, on_change=_choose_best,
            help="The best point is chosen among those with at least this accuracy.",
        )  # fmt: skip
        column = CRITERION_COLUMNS[criterion]
        if not subjects[name]:
            return BestPoint(results.averages, requirements.find_best_point(results.averages, column)[0]), column
        minimum = st.number_input(
            "At least (%)", 0, 100, DEFAULT_MINIMUM, key=address.MINIMUM, bind=address.BIND, width=140,
            on_change=_choose_best,
        )  # fmt: skip
    requirement = Requirement(subjects[name], minimum / 100)
    table = _add_requirement(
        results.sweep.id, tuple(results.points), requirement.subject, requirement.at_least, results
    )
    return BestPoint(table, *requirements.find_best_point(table, column), requirement, name), column


def _choose_best() -> None:
    """Callback of the controls: show the best point instead of the point that was chosen before."""
    view_state.pick_point("")


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _add_requirement(
    sweep: str, points: tuple[str, ...], subject: str, at_least: float, _results: SweepResults
) -> pd.DataFrame:
    requirement = Requirement(subject, at_least)
    return requirements.judge_points(_results.tasks, _results.averages, requirement, _results.answers)


def draw_verdict(best_point: BestPoint, point_name: str) -> None:
    """Draw whether the chosen point meets the requirement, and how certain that is."""
    if (requirement := best_point.requirement) is None:
        return
    row, required_minimum = best_point.row(point_name), percent(requirement.at_least, 0)
    name = page_text.safe_text(best_point.requirement_name, 60)
    if not best_point.is_met:
        subject = name if best_point.requirement_name in DOMAIN_LABELS else f"on {name}"
        st.warning(
            f"No point has at least {required_minimum} {subject}."
            + (" The nearest is shown." if point_name == best_point.point_name else ""),
            icon=":material/block:",
        )
    score = f"{percent(row['required'])} ({percent(row['required_low'])} to {percent(row['required_high'])})"
    is_uncertain = requirements.is_uncertain(row, requirement)
    st.markdown(
        f":material/{'check_circle' if row['meets'] else 'cancel'}: {name[:1].upper()}{name[1:]} {score}, "
        f"n = {row['required_n']:,.0f}: at least {required_minimum} is {'' if row['meets'] else 'not '}met. In "
        f"{percent(row['certainty'], 0)} of {requirements.describe_draws(best_point.averages)} it is met"
        + (". The interval crosses the bound, so the result may differ on other images." if is_uncertain else ".")
    )
