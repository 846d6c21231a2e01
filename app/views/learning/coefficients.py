"""Learned coefficients: a map of all tensors at a chosen step, curves over the steps, and sums over experts."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import expert_names
from app.reading.runs import run_names
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.learning import learning_tables
from app.widgets import chart_view, paper_line, selection_pickers
from merging.study.runs.run import Run
from viz.figure_text import plural

DEFAULT_OTHER_RUNS = 2  # other runs whose sums are shown at first
ONE_COEFFICIENT_NOTE = (
    "This merge learned one coefficient for each expert, and none for single tensors; the curves show all of them."
)


@guarded_fragment
def draw_view(run: Run, other_runs: Sequence[Run]) -> None:
    """Draw the charts of one run; ``other_runs`` are runs that learned on the same models."""
    by_tensor = learning_tables.is_by_tensor(run)
    tensor, expert = _draw_map(run) if by_tensor else (None, None)
    if not by_tensor:
        st.info(ONE_COEFFICIENT_NOTE)
    _draw_lines(run, tensor, expert)
    if by_tensor:
        _draw_sums(run, [other_run for other_run in other_runs if learning_tables.is_by_tensor(other_run)], tensor)


def _draw_map(run: Run) -> tuple[str | None, str | None]:
    """Draw the map at the chosen step; returns the chosen tensor and expert."""
    steps = learning_tables.list_stored_steps(run.id)
    chart_view.draw_question("coefficient_map")
    step = None
    if steps:
        options = [*map(str, steps), learning_tables.MERGED_STEP]
        choice = st.select_slider(
            "Step of learning", options, learning_tables.MERGED_STEP, key=address.LEARNING_STEP, bind=address.BIND,
            help="The last stop shows the coefficients that were merged, after learning.",
        )  # fmt: skip
        step = None if choice == learning_tables.MERGED_STEP else int(choice)
    table = learning_tables.read_coefficients(run.id, step)
    experts, tensors = list(dict.fromkeys(table["expert"])), list(dict.fromkeys(table["tensor"]))
    chart_slot = st.container()
    with st.container(horizontal=True, gap="medium"):
        tensor = selection_pickers.pick_selected(address.TENSOR, tensors, "Tensor", width=380)
        expert = selection_pickers.pick_selected(address.EXPERT, experts, "Expert", width=220)
    with chart_slot:
        chart_view.draw_chart(
            "coefficient_map", table, name=f"coefficients_{run.id[:8]}", question_drawn=True,
            selected=(expert, tensor), limits=learning_tables.find_coefficient_range(run.id), step=step, sources=[run],
            description=f"{'As merged' if step is None else f'At step {step:,}'}; one color scale for all steps.",
        )  # fmt: skip
    return tensor, expert


def _draw_lines(run: Run, tensor: str | None, expert: str | None) -> None:
    """Draw coefficients over the steps, of the chosen tensor or of all."""
    tensor = tensor if tensor and learning_tables.STEPS in run.tables else None  # the trace has only means
    if learning_tables.TRACE not in run.tables and tensor is None:
        return
    table = learning_tables.read_coefficient_lines(run.id, tensor)
    caption = (
        f"Tensor {page_text.safe_text(tensor)}."
        if tensor
        else "Means over all tensors; choose one above to see its own."
    )
    if not learning_tables.is_by_tensor(run):
        caption = "One coefficient for each expert."
    elif expert and tensor is None:
        name = page_text.safe_text(expert_names.expert_name(expert))
        caption += f" The band spans the smallest to the largest coefficient of {name}."
    chart_view.draw_chart(
        "coefficient_steps", table, name=f"coefficient_steps_{run.id[:8]}", tensor=tensor or "", band=expert,
        experts=list(run.experts), sources=[run], caption=caption,
    )  # fmt: skip


def _draw_sums(run: Run, other_runs: Sequence[Run], tensor: str | None) -> None:
    """Draw the summed coefficients of this run and of chosen others."""
    chart_view.draw_question("coefficient_sums")
    labels = run_names.label_runs(other_runs)
    chosen_ids: list[str] = []
    if other_runs:
        chosen_ids = st.multiselect(
            "Compare with", list(labels), list(labels)[:DEFAULT_OTHER_RUNS], format_func=labels.__getitem__,
            key=f"summed_{run.id}", placeholder="Runs that learned on the same models",
        )  # fmt: skip
    shown_runs = [run, *(other_run for other_run in other_runs if other_run.id in chosen_ids)]
    table = learning_tables.sum_coefficients(tuple(shown_run.id for shown_run in shown_runs))
    chart_view.draw_chart(
        "coefficient_sums", table, name=f"coefficient_sums_{run.id[:8]}", question_drawn=True, selected=tensor,
        sources=shown_runs, runs=[shown_run.id for shown_run in shown_runs],
        description=f"Sums over {plural(len(run.experts), 'expert')}; a tensor that an edit pruned has none.",
    )  # fmt: skip
    paper_line.draw_claims(paper_line.claims_in_words("learning/coefficients"), shown_runs)
