"""Controls of the criterion for the best point: a score, and a required accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from app import page_text
from app.reading import measurements, page_data
from app.reading.sweeps import SweepResults
from app.session import address, view_state
from app.widgets import page_parts
from merging.study.sweeps import requirement as requirements
from merging.study.sweeps.requirement import BEST_COLUMNS, IN, OUT, RESAMPLES, SEED, Requirement
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

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
            f"{plural(failing, 'point')} below it, in white or crossed out. {RESAMPLES:,} resamples of the images with "
            f"replacement, seed {SEED}."
        )


def pick_best(results: SweepResults) -> BestPoint:
    """Draw the controls; returns the best point by the chosen criterion and requirement."""
    has_both_domains = results.averages["h_score"].notna().any()  # a plane of two experts has no tasks out of domain
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
        if not subjects[name]:
            return BestPoint(
                results.averages, requirements.find_best_point(results.averages, CRITERION_COLUMNS[criterion])[0]
            )
        minimum = st.number_input(
            "At least (%)", 0, 100, DEFAULT_MINIMUM, key=address.MINIMUM, bind=address.BIND, width=140,
            on_change=_choose_best,
        )  # fmt: skip
    requirement = Requirement(subjects[name], minimum / 100)
    table = _add_requirement(
        results.sweep.id, tuple(results.points), requirement.subject, requirement.at_least, results
    )
    return BestPoint(table, *requirements.find_best_point(table, CRITERION_COLUMNS[criterion]), requirement, name)


def _choose_best() -> None:
    """Callback of the controls: show the best point instead of the point that was chosen before."""
    view_state.pick_point("")


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _add_requirement(
    sweep: str, points: tuple[str, ...], subject: str, at_least: float, _results: SweepResults
) -> pd.DataFrame:
    return requirements.judge_points(_results.tasks, _results.averages, Requirement(subject, at_least))


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
        f"{percent(row['certainty'], 0)} of {RESAMPLES:,} resamples of the images (seed {SEED}) it is met"
        + (". The interval crosses the bound, so the result may differ on other images." if is_uncertain else ".")
    )
