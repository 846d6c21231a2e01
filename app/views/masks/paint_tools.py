"""The tools of painting: brush, rectangle, undo and redo, fills by pickers, and tables to start from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from app.session import painting_state
from app.session.painting import Cells, boxed_cells, clicked_cells, largest_tensors, random_tensors, select_names
from app.views.masks.paint_sheet import PaintSheet
from app.widgets import chart_view
from merging.methods.factor_rules import MAX_FACTOR
from viz.figure_text import clean_text
from viz.parts.tensor_columns import order_tensors

CANVAS = "manual_canvas"
CLICK_TOOL, RECTANGLE_TOOL = "Click", "Rectangle"
OTHER_VALUE = "value"
BRUSH_CHOICES = ("0", "1", "0.5", OTHER_VALUE)
TOOL_KEY, BRUSH_KEY, FACTOR_KEY = "paint_tool", "paint_brush", "paint_factor"
# Label in the picker -> the column of the tensors' facts; the first label stands for all tensors.
EVERYWHERE = "everywhere"
SCOPE_COLUMNS = {
    EVERYWHERE: "",
    "in blocks": "section",
    "in kinds of layer": "part",
    "in roles": "role",
    "in tensors": "tensor",
}
EXPERTS_KEY, SCOPE_KEY, NAMES_KEY = "paint_experts", "paint_where", "paint_which"
TOOL_HINTS = {
    CLICK_TOOL: "Click a cell, a name of a row or, below the map, the name of a block; the row **all** paints every "
    "expert.",
    RECTANGLE_TOOL: "Drag over cells, over names of rows, or over names of blocks. Single clicks do nothing with this "
    "tool.",
}


def read_brush_factor() -> float:
    """The factor that the next stroke paints."""
    choice = str(st.session_state.get(BRUSH_KEY) or BRUSH_CHOICES[0])
    return float(st.session_state.get(FACTOR_KEY, 1.5)) if choice == OTHER_VALUE else float(choice)


def draw_tool_bar(stroke_count: int, undone_count: int) -> str:
    """Draw the tool, the brush, undo and redo; returns the tool's shape on the chart, empty for clicks."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        tool = st.segmented_control(
            "Tool", (CLICK_TOOL, RECTANGLE_TOOL), default=CLICK_TOOL, key=TOOL_KEY, required=True
        )
        choice = st.segmented_control(
            "Brush: the factor", BRUSH_CHOICES, default=BRUSH_CHOICES[0], key=BRUSH_KEY, required=True
        )
        if choice == OTHER_VALUE:
            st.number_input(
                "Value", -MAX_FACTOR, MAX_FACTOR, 1.5, 0.1, key=FACTOR_KEY, width=140,
                help="2 doubles a task vector, a number below 0 reverses it.",
            )  # fmt: skip
        st.button(
            f"Undo ({stroke_count})", key="paint_undo", icon=":material/undo:", shortcut="Ctrl+Z", on_click=_undo,
            disabled=not stroke_count, help="Removes the last stroke, as does the browser's Back.",
        )  # fmt: skip
        st.button(
            f"Redo ({undone_count})", key="paint_redo", icon=":material/redo:", shortcut="Ctrl+Shift+Z", on_click=_redo,
            disabled=not undone_count,
        )  # fmt: skip
    st.caption(TOOL_HINTS[tool])
    return "box" if tool == RECTANGLE_TOOL else ""


def _undo() -> None:
    if painting := painting_state.current_painting():
        painting.undo()


def _redo() -> None:
    if painting := painting_state.current_painting():
        painting.redo()


def make_gesture_callback(sheet: PaintSheet) -> Callable[[], None]:
    """The callback of the canvas: paint the clicked mark, or the selected rectangle."""

    def paint() -> None:
        if st.session_state.get(TOOL_KEY) != RECTANGLE_TOOL:
            if (mark := chart_view.read_clicked_mark(CANVAS)) is not None:
                facts = {name: list(sheet.facts[name]) for name in ("tensor", "section", "part")}
                _paint(clicked_cells(sheet.experts, facts, mark), _mark_in_words(mark))
            return
        index_by_name = {name: number for number, name in enumerate(sheet.facts["tensor"])}
        order = [index_by_name[name] for name in order_tensors(sheet.facts, sheet.group)["tensor"]]
        for box in chart_view.read_boxes(CANVAS):
            _paint(boxed_cells(len(sheet.experts), order, box), "a rectangle")

    return paint


def _mark_in_words(mark: dict[str, str]) -> str:
    scope = next((mark[kind] for kind in ("tensor", "section", "part") if kind in mark), "everything")
    return f"{scope} of {mark.get('expert', 'all experts')}"


def _paint(cells: Cells, description: str) -> None:
    painting, factor = painting_state.current_painting(), read_brush_factor()
    if painting is not None and painting.factors.shape == cells.shape:
        painting.paint(cells, factor, f"{factor:g} on {description}")


def draw_fill(sheet: PaintSheet) -> None:
    """Draw the pickers that paint without a mouse: experts, tensors, and the button."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        experts = st.multiselect(
            "Paint the tensors of", sheet.experts, key=EXPERTS_KEY, placeholder="all experts", width=230,
            format_func=clean_text,
        )  # fmt: skip
        scope = st.selectbox("Where", SCOPE_COLUMNS, key=SCOPE_KEY, width=170)
        chosen_names: list[str] = []
        if column := SCOPE_COLUMNS[scope]:
            names = list(dict.fromkeys(sheet.facts[column]))
            chosen_names = st.multiselect(
                "Which", names, key=f"{NAMES_KEY}_{column}", placeholder="Choose", width=300, format_func=clean_text
            )
        st.button(
            f"Paint {read_brush_factor():g}", key="paint_fill", icon=":material/format_paint:",
            on_click=_paint_selection,
            args=(sheet, column, experts, chosen_names), disabled=bool(column and not chosen_names),
        )  # fmt: skip


def _paint_selection(sheet: PaintSheet, column: str, experts: list[str], chosen_names: list[str]) -> None:
    columns = select_names(list(sheet.facts[column]), chosen_names) if column else np.ones(len(sheet.facts), bool)
    scope = ", ".join(chosen_names) or "everything"
    _paint(np.outer(select_names(sheet.experts, experts), columns), f"{scope} of {', '.join(experts) or 'all experts'}")


# Tables to start from


def draw_start(sheet: PaintSheet) -> None:
    """Draw the picker of tables to start from."""
    starts = _list_starts(sheet)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        name = st.selectbox("Start from", starts, key="paint_start", width=330)
        number = 0
        if name == START_RANDOM:
            number = st.number_input("Seed", 0, 10_000, 0, key="paint_seed", width=120)
        elif name == START_LARGEST:
            number = st.number_input("k", 0, len(sheet.facts), len(sheet.facts) // 2, key="paint_k", width=120)
        st.button(
            "Start",
            key="paint_go",
            icon=":material/restart_alt:",
            on_click=_replace_painting,
            args=(sheet, name, number),
        )
    st.caption(starts[name])


START_EVERYTHING, START_NOTHING, START_THIS_RUN = "everything", "nothing", "this run's mask"
START_LWPTV = "LwPTV at the ratio above"
START_RANDOM = "random, with as many scalars"
START_LARGEST = "the k largest by saliency"
START_GRADIENT = "the gradient map (first order)"
GRADIENT_NOTE = (
    "Factor 0 where one gradient predicts that the mean margin of the right class grows if the expert's part is taken "
    "out (mean of in and out of domain, an estimate), else 1."
)


def _list_starts(sheet: PaintSheet) -> dict[str, str]:
    """{name: description} of the tables to start from."""
    scalar_count = f"{int(sheet.numels[sheet.column_matrix('final').astype(bool).any(axis=0)].sum()):,}"
    run_start = (
        {START_THIS_RUN: "Factor 1 where this run kept a tensor, 0 where it pruned it."}
        if sheet.own_mask is not None
        else {}
    )
    gradient_start = {} if sheet.losses is None else {START_GRADIENT: GRADIENT_NOTE}
    return {
        START_EVERYTHING: "Factor 1 everywhere, which changes nothing.",
        START_NOTHING: "Factor 0 everywhere, which is the pretrained model.",
        **run_start,
        START_LWPTV: f"Factor 1 where LwPTV keeps a tensor at prune ratio {sheet.ratio:g}, else 0.",
        START_RANDOM: "Whole tensors in random order, the same for all experts, with at most as many scalars as LwPTV "
        f"keeps at prune ratio {sheet.ratio:g}: {scalar_count}.",
        START_LARGEST: "The tensors with the largest mean saliency over the experts, the same for all experts.",
        **gradient_start,
    }


def _replace_painting(sheet: PaintSheet, name: str, number: int) -> None:
    start_mask = make_start_mask(sheet, name, number)
    detail = {
        START_RANDOM: f", seed {number}",
        START_LARGEST: f", k = {number}",
        START_LWPTV: f", {sheet.ratio:g}",
    }.get(name, "")
    if (painting := painting_state.current_painting()) and painting.factors.shape == start_mask.shape:
        painting.replace(start_mask.astype(np.float64), f"start from {name}{detail}")


def make_start_mask(sheet: PaintSheet, name: str, number: int = 0) -> Cells:
    """The cells (experts, tensors) with the factor 1 in a table to start from; ``number`` is the seed or k."""
    final = sheet.column_matrix("final").astype(bool)
    if name == START_RANDOM:
        scalars = int(sheet.numels[final.any(axis=0)].sum())
        return random_tensors(sheet.numels.tolist(), scalars, len(sheet.experts), number)
    if name == START_LARGEST:
        return largest_tensors(sheet.column_matrix("saliency").astype(np.float64), number)
    if name == START_GRADIENT and sheet.losses is not None:
        return ~(sheet.losses > 0)
    if name == START_THIS_RUN and sheet.own_mask is not None:
        return sheet.own_mask
    return {START_EVERYTHING: np.ones_like(final), START_NOTHING: np.zeros_like(final)}.get(
        name, final
    )  # final: LwPTV's mask
