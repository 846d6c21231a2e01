"""Painting on Masks: the tools, the canvas, the kept share, the rules, and the panel that merges the painting.

A painting is a matrix of factors (experts, tensors), by which task vectors are multiplied; 0 drops a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import measurements
from app.reading.runs import network_values
from app.session import address, painting_state
from app.session.click_errors import guarded_fragment
from app.views.masks import paint_link, paint_numbers, paint_run, paint_tools
from app.views.masks.paint_sheet import PaintSheet
from app.widgets import chart_view
from app.widgets.jobs import measure_button
from app.widgets.panels import network_panel
from merging.study.analysis.measurement_registry import MEASUREMENTS
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

    from app.session.painting import Factors

FIRST_ORDER = "first_order"  # the measurement of the first-order map
NOT_LINKED = (
    "The address does not contain this painting: it needs too many rules, and the store cannot be written to. If you "
    "reload the page, the painting is lost."
)
WHOLE_TENSORS_NOTE = (
    "This run masks query, key and value separately. Factors apply to whole tensors: on the canvas, a tensor counts as "
    "kept if any of the three is, and its saliency is their mean."
)


def draw_paint_switch() -> bool:
    """Draw the switch that turns the final mask into a canvas; returns whether it is on."""
    return st.toggle(
        "Paint", key=address.PAINTING, bind=address.BIND,
        help="Paint the factors that multiply each expert's task vector, tensor by tensor.",
    )  # fmt: skip


def draw_painting(
    run: Run,
    masks: pd.DataFrame,
    ratio: float,
    run_masks: pd.DataFrame | None,
    group: str,
    *,
    qkv_separate: bool = False,
) -> None:
    """Draw the canvas of a run with its tools, numbers and run panel.

    ``masks`` are the masks at ``ratio``; ``run_masks`` are those that the run used, None if it pruned no tensors.
    ``qkv_separate`` is whether the run masks query, key and value separately.
    """
    if qkv_separate:
        st.caption(WHOLE_TENSORS_NOTE)
    run_mask = (
        None if run_masks is None else run_masks["final"].to_numpy(bool).reshape(run_masks["expert"].nunique(), -1)
    )
    draw_canvas(
        PaintSheet(run, masks, ratio, run_mask, group, _read_squared_norms(run, masks), _read_losses(run, masks))
    )


def _read_squared_norms(run: Run, masks: pd.DataFrame) -> Factors | None:
    """Squared norms of the task vectors, (experts, tensors); None if they are not measured."""
    if (measurement := measurements.find_measurement(measurements.EXPERT_PAIRS, run.id)) is None:
        return None
    rows = measurements.measured_table(measurement, "experts").set_index(["expert", "order"])["square"]
    return _make_matrix(rows, masks, "order")


def _read_losses(run: Run, masks: pd.DataFrame) -> Factors | None:
    """The predicted change of the mean margin if a cell is taken out, (experts, tensors); None if not measured.

    The change is the mean of those in and out of domain.
    """
    if FIRST_ORDER not in MEASUREMENTS or (measurement := measurements.find_measurement(FIRST_ORDER, run.id)) is None:
        return None
    rows = measurements.measured_table(measurement, "experts").groupby(["expert", "tensor"])["take_out"].mean()
    return _make_matrix(rows, masks, "tensor")


def _make_matrix(rows: pd.Series[float], masks: pd.DataFrame, column: str) -> Factors:
    """Numbers by expert and tensor, which ``column`` identifies, as a matrix (experts, tensors)."""
    cells = list(zip(masks["expert"], masks[column], strict=True))
    return rows.reindex(cells).to_numpy().reshape(masks["expert"].nunique(), -1)


@guarded_fragment
def draw_canvas(sheet: PaintSheet) -> None:
    """Draw the part of the page that a stroke redraws."""

    def read_factors(words: str) -> Factors:
        return paint_link.read_factors(words, sheet.experts, sheet.parameters)

    painting, problem = painting_state.follow_address(sheet.experts, list(sheet.facts["tensor"]), read_factors)
    if problem:
        st.warning(
            f"The painting in this link cannot be shown: {page_text.safe_text(problem, 400)}",
            icon=":material/link_off:",
        )
    values = sheet.canvas_table(painting.factors).set_index(["tensor", "expert"])["factor"]
    with st.container(key=network_panel.PANEL_KEY):
        network_panel.draw_map(sheet.run, network_values.read_map_of(sheet.run, values), "factor", size="low")
    chart_view.draw_question(paint_tools.CANVAS)
    shape = paint_tools.draw_tool_bar(len(painting.strokes), len(painting.undone_strokes))
    chart_slot = st.container()
    paint_tools.draw_fill(sheet)
    paint_tools.draw_start(sheet)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        max_tensors = paint_numbers.draw_budget_field(len(sheet.facts))
        kept_note = paint_numbers.kept_in_words(sheet, painting.factors, max_tensors)
        st.markdown(kept_note, width="stretch")
    with chart_slot:
        chart_view.draw_chart(
            paint_tools.CANVAS, sheet.canvas_table(painting.factors), name=f"painted_{sheet.run.id[:8]}",
            question_drawn=True, on_click=chart_view.Gesture(shape, paint_tools.make_gesture_callback(sheet)),
            group=sheet.group, brush=paint_tools.read_brush_factor(), description=kept_note, sources=[sheet.run],
        )  # fmt: skip
    paint_numbers.draw_expert_table(sheet, painting.factors)
    if sheet.squares is None:
        measure_button.draw_missing(
            measurements.EXPERT_PAIRS, [sheet.run], "The norms of the task vectors are not measured yet for"
        )
    is_in_address = painting_state.write_painting(
        lambda factors: paint_link.write_factors(factors, sheet.experts, sheet.parameters)
    )
    if not is_in_address and (painting.factors != 1).any():
        st.caption(NOT_LINKED)
    paint_run.draw_run_panel(sheet, painting)
