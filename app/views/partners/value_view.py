"""What each expert brings on the Partners page: Shapley values, for all tasks and step by step for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from app.reading import expert_names
from app.session import address, view_state
from app.views.partners import partner_data
from app.views.partners.partner_data import Team
from app.widgets import chart_view
from merging.study.partners.shapley import total_gain
from merging.study.partners.subsets import MOST_EXACT, PERMUTATIONS
from viz.figure_text import percent

if TYPE_CHECKING:
    from merging.study.partners.subsets import MeasuredSubsets

MEANING = (
    "A Shapley value is the mean of what the expert adds to the accuracy over all orders in which the experts may "
    "join. The values of a row add up to the gain of merging all experts over the pretrained model. {} Intervals are "
    "of 95 %, by a bootstrap of images."
)
EXACT = "They are exact: every subset is merged."
SAMPLED = f"They are means over {PERMUTATIONS} seeded orders, whose spread is part of the intervals."
NOBODY, EVERYONE = "Pretrained", "All experts"


def draw_view(team: Team) -> None:
    """Draw the Shapley values, once all subsets are measured."""
    values = partner_data.read_values(team.stored_subsets.key, team.answers)
    exactness = EXACT if len(team.answers.experts) <= MOST_EXACT else SAMPLED
    chart_view.draw_chart(
        "shapley_matrix", values.rename(columns={"task": "first", "expert": "second", "value": "change"}),
        name=f"shapley_{team.sweep.id}", order=partner_data.order_team(team), on_click=_choose_task,
        caption=f"{MEANING.format(exactness)} {team.note}", sources=[team.sweep],
    )  # fmt: skip
    if len(values):
        _draw_task(team, values)


def _choose_task() -> None:
    """Callback of a click on the matrix: show the steps of that row's task."""
    if cell := chart_view.read_clicked_mark("shapley_matrix"):
        view_state.pick_value(address.GAINED_TASK, cell["first"])


def _draw_task(team: Team, values: pd.DataFrame) -> None:
    """Draw the steps from the pretrained model to all experts for one task, and their sum."""
    tasks = list(dict.fromkeys(values["task"]))
    chart_view.draw_question("shapley_waterfall")
    task = view_state.resolve_value(address.GAINED_TASK, tasks, tasks[0])
    st.session_state["gained_task"] = task  # the picker shows the task of the link
    st.selectbox(
        "Task", tasks, format_func=expert_names.expert_name, key="gained_task", width=320,
        on_change=view_state.pick_value_from, args=(address.GAINED_TASK, "gained_task"),
    )  # fmt: skip
    steps = list_steps(team.answers, values[values["task"] == task], task)
    gain, total = steps["change"].sum(), steps["accuracy"].iloc[-1] - steps["accuracy"].iloc[0]
    chart_view.draw_chart(
        "shapley_waterfall", steps, name=f"waterfall_{team.sweep.id}", question_drawn=True,
        task=expert_names.expert_name(task), sources=[team.sweep],
        caption=f"The values add up to {100 * gain:+.2f} points; all experts merged minus pretrained is "
        f"{percent(steps['accuracy'].iloc[-1])} − {percent(steps['accuracy'].iloc[0])} = {100 * total:+.2f} points.",
    )  # fmt: skip


def list_steps(measured: MeasuredSubsets, values: pd.DataFrame, task: str) -> pd.DataFrame:
    """The table of the waterfall: pretrained, each expert from the one that brings most, all experts."""
    nobody, everyone = total_gain(measured, task)
    ordered = values.sort_values("value", ascending=False, kind="stable")
    after = nobody + ordered["value"].cumsum()
    steps = ordered.rename(columns={"value": "change"}).assign(start=after - ordered["value"], accuracy=after)
    ends = [
        {"expert": name, "start": 0.0, "accuracy": value} for name, value in ((NOBODY, nobody), (EVERYONE, everyone))
    ]
    columns = ["expert", "start", "change", "low", "high", "accuracy"]
    return pd.concat([pd.DataFrame(ends[:1]), steps, pd.DataFrame(ends[1:])], ignore_index=True)[columns]
