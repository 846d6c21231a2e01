"""Controls of the criterion for the best point: a score, and a required accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from app import page_text
from app.reading import measurements, page_data
from app.reading.sweeps import SweepResults
from app.session import address, view_state
from merging.study.sweeps import requirement as requirements
from merging.study.sweeps.requirement import BEST_BY, DRAWS, IN, OUT, SEED, Requirement
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "nothing"
GROUPS = {"out of domain": OUT, "in domain": IN}
CRITERIA = {"H-score": BEST_BY["h"], "in domain": BEST_BY[IN]}
FIRST_MINIMUM = 80  # percent, the field's default


class BestPoint(NamedTuple):
    """The averages of a sweep, its best point, and the required accuracy with its name on the page."""

    averages: pd.DataFrame
    best: str
    is_met: bool = True
    requirement: Requirement | None = None
    name: str = ""

    @property
    def required_value(self) -> tuple[str, float] | None:
        """The column or the task whose chart is shaded, and its required minimum; None without a requirement."""
        if self.requirement is None:
            return None
        subject, least = self.requirement.subject, self.requirement.at_least
        return requirements.GROUPS[subject][0] if subject in requirements.GROUPS else subject, least

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
            f" Subject to {self.name} at least {percent(self.requirement.at_least, 0)}: {plural(failing, 'point')} "
            f"below it, in white or crossed out. {DRAWS:,} resamples of the images with replacement, seed {SEED}."
        )


def pick_best(results: SweepResults) -> BestPoint:
    """Draw the controls; returns the best point by them."""
    both = results.averages["h_score"].notna().any()  # a plane has no tasks out of domain
    titles = measurements.titles_by_task()
    tasks = {titles.get(str(key), str(key)): str(key) for key in results.task_keys}
    scores = {NOTHING: ""} | (GROUPS if both else {"in domain": IN}) | tasks
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        by = "in domain"
        if both:
            by = st.segmented_control(
                "Best by", CRITERIA, default="H-score", key=address.CRITERION, bind=address.BIND, required=True,
                on_change=_choose_best,
            )  # fmt: skip
        name = st.selectbox(
            "Subject to", scores, key=address.CONSTRAINT, bind=address.BIND, width=240, on_change=_choose_best,
            help="The best point is chosen among those with at least this accuracy.",
        )  # fmt: skip
        if not scores[name]:
            return BestPoint(results.averages, requirements.best_point(results.averages, CRITERIA[by])[0])
        least = st.number_input(
            "At least (%)",
            0,
            100,
            FIRST_MINIMUM,
            key=address.MINIMUM,
            bind=address.BIND,
            width=140,
            on_change=_choose_best,
        )
    requirement = Requirement(scores[name], least / 100)
    judged = _add_requirement(
        results.sweep.id, tuple(results.points), requirement.subject, requirement.at_least, results
    )
    return BestPoint(judged, *requirements.best_point(judged, CRITERIA[by]), requirement, name)


def _choose_best() -> None:
    """Callback of the controls: show the best point by them instead of the chosen one."""
    view_state.pick_point("")


@st.cache_data(max_entries=page_data.CACHED, show_spinner=False)
def _add_requirement(
    sweep: str, points: tuple[str, ...], subject: str, at_least: float, _results: SweepResults
) -> pd.DataFrame:
    return requirements.judge_points(_results.tasks, _results.averages, Requirement(subject, at_least))


def draw_verdict(subject: BestPoint, chosen: str) -> None:
    """Draw whether the chosen point meets the requirement, and how certain that is."""
    if (requirement := subject.requirement) is None:
        return
    row, least = subject.row(chosen), percent(requirement.at_least, 0)
    name = page_text.safe_text(subject.name, 60)
    if not subject.is_met:
        st.warning(
            f"No point has at least {least} {name if subject.name in GROUPS else f'on {name}'}."
            + (" The nearest is shown." if chosen == subject.best else ""),
            icon=":material/block:",
        )
    score = f"{percent(row['required'])} ({percent(row['required_low'])} to {percent(row['required_high'])})"
    crosses = requirements.is_uncertain(row, requirement)
    st.markdown(
        f":material/{'check_circle' if row['meets'] else 'cancel'}: {name[:1].upper()}{name[1:]} {score}, "
        f"n = {row['required_n']:,.0f}: at least {least} is {'' if row['meets'] else 'not '}met. In "
        f"{percent(row['certainty'], 0)} of {DRAWS:,} resamples of the images (seed {SEED}) it is met"
        + (". The interval crosses the bound, so the result may differ on other images." if crosses else ".")
    )
