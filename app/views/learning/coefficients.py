"""Learned coefficients: a map of all tensors with a step to choose, lines over the steps, and sums over experts."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import text
from app.session import address, selection
from app.session.clicks import fragment
from app.views.learning import data
from app.widgets import chart, paper_line, selected
from merging.study.runs.run import Run
from viz.text import clean_text, plural

HOW = "Click a cell, or choose"
MOST = 2  # other runs whose sums are shown at first
ONE_EACH = (
    "This merge learned one coefficient for each expert, and none for single tensors: the lines show all of them."
)


def choose_cell() -> None:
    """Callback of a click: the cell's expert and tensor go into their pickers."""
    if cell := chart.clicked("coefficient_map"):
        selection.choose(address.TENSOR, cell["tensor"])
        selection.choose(address.EXPERT, cell["expert"])


@fragment
def view(run: Run, others: Sequence[Run]) -> None:
    """The charts of one run; ``others`` learned on the same models."""
    whole = data.by_tensor(run)
    tensor, expert = _map(run) if whole else (None, None)
    if not whole:
        st.info(ONE_EACH)
    _lines(run, tensor, expert)
    if whole:
        _sums(run, [other for other in others if data.by_tensor(other)], tensor)


def _map(run: Run) -> tuple[str | None, str | None]:
    """The map at the chosen step; returns the chosen tensor and expert."""
    taken = data.steps(run.id)
    chart.ask("coefficient_map")
    step = None
    if taken:
        options = [*map(str, taken), data.MERGED]
        written = st.select_slider(
            "Step of learning", options, data.MERGED, key=address.LEARNING_STEP, bind=address.BIND,
            help="The last stop shows the coefficients that were merged, after learning.",
        )  # fmt: skip
        step = None if written == data.MERGED else int(written)
    table = data.coefficients(run.id, step)
    experts, tensors = list(dict.fromkeys(table["expert"])), list(dict.fromkeys(table["tensor"]))
    picture = st.container()
    with st.container(horizontal=True, gap="medium"):
        tensor = selected.pick(address.TENSOR, tensors, "Tensor", placeholder=HOW, width=380)
        expert = selected.pick(address.EXPERT, experts, "Expert", width=220)
    with picture:
        chart.chart(
            "coefficient_map", table, name=f"coefficients_{run.id[:8]}", headed=True, on_click=choose_cell,
            selected=(expert, tensor), limits=data.limits(run.id), step=step, of=[run],
            description=f"{'As merged' if step is None else f'At step {step:,}'}; one color scale for all steps.",
        )  # fmt: skip
    return tensor, expert


def _lines(run: Run, tensor: str | None, expert: str | None) -> None:
    """Coefficients over the steps, of the chosen tensor or of all."""
    tensor = tensor if tensor and data.STEPS in run.tables else None
    if data.TRACE not in run.tables and tensor is None:
        return
    table = data.lines(run.id, tensor)
    of = f"Of {text.safe_text(tensor)}." if tensor else "Means over all tensors; choose a tensor above for its own."
    if not data.by_tensor(run):
        of = "One coefficient for each expert."
    elif expert and tensor is None:
        of += f" The band runs from {text.safe_text(expert)}'s smallest coefficient to its largest."
    chart.chart(
        "coefficient_steps", table, name=f"coefficient_steps_{run.id[:8]}", tensor=tensor or "", band=expert,
        experts=list(run.experts), of=[run], caption=of,
    )  # fmt: skip


def _sums(run: Run, others: Sequence[Run], tensor: str | None) -> None:
    """Summed coefficients of this run and of others beside it."""
    chart.ask("coefficient_sums")
    labels = {other.id: clean_text(text.label(other), 80) for other in others}
    beside: list[str] = []
    if others:
        beside = st.multiselect(
            "Beside", list(labels), list(labels)[:MOST], format_func=labels.__getitem__, key=f"summed_{run.id}",
            placeholder="Runs that learned on the same models",
        )  # fmt: skip
    shown = [run, *(other for other in others if other.id in beside)]
    table = data.sums(tuple(one.id for one in shown))
    chart.chart(
        "coefficient_sums", table, name=f"coefficient_sums_{run.id[:8]}", headed=True, selected=tensor, of=shown,
        description=f"Sums over {plural(len(run.experts), 'expert')}; a tensor that an edit pruned has none.",
    )  # fmt: skip
    paper_line.show(paper_line.of("learning/coefficients"), shown)
