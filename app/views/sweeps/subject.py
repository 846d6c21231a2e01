"""Controls of what makes a point the best one: a score, and an accuracy that the point must have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from app import text
from app.reading import data, measurements
from app.reading.sweeps import SweepResults
from app.session import address, state
from merging.study.sweeps import requirement as requirements
from merging.study.sweeps.requirement import BEST_BY, DRAWS, IN, OUT, SEED, Requirement
from viz.text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "nothing"
GROUPS = {"out of domain": OUT, "in domain": IN}
BY = {"H-score": BEST_BY["h"], "in domain": BEST_BY[IN]}
LEAST = 80  # percent, at first


class Subject(NamedTuple):
    """The averages of a sweep with what is required of them, the best point, and how the requirement is called."""

    averages: pd.DataFrame
    best: str
    met: bool = True
    requirement: Requirement | None = None
    name: str = ""

    @property
    def required(self) -> tuple[str, float] | None:
        """The column or the task that is shaded, and its least value."""
        if self.requirement is None:
            return None
        of, least = self.requirement.of, self.requirement.at_least
        return requirements.GROUPS[of][0] if of in requirements.GROUPS else of, least

    def row(self, point: str) -> pd.Series:
        """The averages of a point."""
        return self.averages[self.averages["point"] == point].iloc[0]

    @property
    def note(self) -> str:
        """What is required, for the line under the pictures."""
        if self.requirement is None:
            return ""
        failing = int((~self.averages.drop_duplicates("point")["meets"]).sum())
        return (
            f" Subject to {self.name} at least {percent(self.requirement.at_least, 0)}: {plural(failing, 'point')} "
            f"below it, in white or crossed out. {DRAWS:,} draws of the images with replacement, seed {SEED}."
        )


def pick(results: SweepResults) -> Subject:
    """The controls; returns the best point by them."""
    both = results.averages["h_score"].notna().any()  # planes have no tasks out of domain
    titles = measurements.titles()
    tasks = {titles.get(str(key), str(key)): str(key) for key in results.task_keys}
    scores = {NOTHING: ""} | (GROUPS if both else {"in domain": IN}) | tasks
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        by = "in domain"
        if both:
            by = st.segmented_control(
                "Best by", BY, default="H-score", key=address.CRITERION, bind=address.BIND, required=True,
                on_change=_best,
            )  # fmt: skip
        name = st.selectbox(
            "Subject to", scores, key=address.CONSTRAINT, bind=address.BIND, width=240, on_change=_best,
            help="The best point is chosen among those that have at least this accuracy.",
        )  # fmt: skip
        if not scores[name]:
            return Subject(results.averages, requirements.best(results.averages, BY[by])[0])
        least = st.number_input(
            "At least (%)", 0, 100, LEAST, key=address.MINIMUM, bind=address.BIND, width=140, on_change=_best
        )
    requirement = Requirement(scores[name], least / 100)
    judged = _judged(results.sweep.id, tuple(results.points), requirement.of, requirement.at_least, results)
    return Subject(judged, *requirements.best(judged, BY[by]), requirement, name)


def _best() -> None:
    """Callback of the controls: the best point by them is shown, whatever was chosen before."""
    state.pick_point("")


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def _judged(sweep: str, points: tuple[str, ...], of: str, at_least: float, _results: SweepResults) -> pd.DataFrame:
    return requirements.judged(_results.tasks, _results.averages, Requirement(of, at_least))


def verdict(subject: Subject, chosen: str) -> None:
    """Whether the chosen point meets the requirement, and how certain that is."""
    if (requirement := subject.requirement) is None:
        return
    row, least = subject.row(chosen), percent(requirement.at_least, 0)
    name = text.safe_text(subject.name, 60)
    if not subject.met:
        st.warning(
            f"No point has at least {least} {name if subject.name in GROUPS else f'on {name}'}."
            + (" The nearest is shown." if chosen == subject.best else ""),
            icon=":material/block:",
        )
    score = f"{percent(row['required'])} ({percent(row['required_low'])} to {percent(row['required_high'])})"
    crosses = requirements.crosses(row, requirement)
    st.markdown(
        f":material/{'check_circle' if row['meets'] else 'cancel'}: {name[:1].upper()}{name[1:]} {score}, "
        f"n = {row['required_n']:,.0f}: at least {least} is {'' if row['meets'] else 'not '}met. In "
        f"{percent(row['certainty'], 0)} of {DRAWS:,} draws of the images (seed {SEED}) it is met"
        + (". The interval crosses the bound, so other images may decide otherwise." if crosses else ".")
    )
