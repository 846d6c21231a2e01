"""The map of the network above a view: one picture from which a tensor, a block or a kind of layer is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import measurements
from app.reading.runs import network_values
from app.session import address, benchmark_choice, run_choice, selection, view_state
from app.widgets import chart_stage, chart_view, selection_pickers
from app.widgets.jobs import measure_button
from merging.base.errors import CheckpointError
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

CHART, PANEL_KEY = "network_map", "network_panel"
LISTENER_KEY = "network_keys"
NOT_MEASURED = "This quantity has not been measured for"
KEYS_HINT = f"{selection.MARK_HINT.format('a tensor, a block or a layer')} Arrow keys choose, too; Enter opens a menu."
SCOPES = {extent: scope for scope, extent in selection.SCOPE_EXTENTS.items()}


def draw_panel(
    run: Run, preferred: Sequence[str], *, other_run: Run | None = None, compact: bool = True, result: str = "",
    shown: Mapping[str, pd.Series[Any]] | None = None,
) -> None:  # fmt: skip
    """Draw the map of a run, or of another run's difference from it; a click chooses a tensor or an expert.

    ``preferred`` are the keys of quantities, of which the first that is stored is shown at first. ``shown`` are values
    by tensor and expert that take the place of stored ones, {quantity: values}. ``result`` is the text at the end of a
    map that is not compact.
    """
    from viz.figures.network.quantities import QUANTITIES

    if compact and chart_stage.is_other_presented(CHART):
        return
    shown = shown or {}
    with st.container(key=PANEL_KEY, gap="small" if compact else "xsmall"):
        available = {*network_values.list_quantities(run), *shown}
        titles = {QUANTITIES[key].title: key for key in QUANTITIES if key in available}
        if not titles:
            return
        first = QUANTITIES[network_values.choose_quantity(run, preferred, shown)].title
        is_of_other_page = view_state.is_entered() and not view_state.value_from_link(address.NETWORK_QUANTITY)
        if is_of_other_page or st.session_state.get(address.NETWORK_QUANTITY) not in titles:  # or of another run
            st.session_state.pop(address.NETWORK_QUANTITY, None)
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            chart_view.draw_question(CHART, "content", KEYS_HINT)
            title = st.selectbox(
                "Map of the network", titles, list(titles).index(first), key=address.NETWORK_QUANTITY,
                bind=address.BIND, width=300, label_visibility="collapsed",
            )  # fmt: skip
            by_area = st.toggle("Areas by scalars", key=address.NETWORK_AREAS, bind=address.BIND)
        quantity = titles[title]
        try:
            table = _read_table(run, other_run, quantity, shown.get(quantity))
        except CheckpointError as error:
            st.caption(f"Not shown: {page_text.safe_text(error, 600)}")
            return
        options = {"question_drawn": True, "size": "low" if compact else "full", "by_area": by_area, "result": result}
        draw_map(run, table, quantity, other_run=other_run, **options)
        for one in (run, *([other_run] if other_run else [])):
            if quantity not in shown and (missing := network_values.find_missing_measurement(one, quantity)):
                measure_button.draw_missing(missing, [one], NOT_MEASURED, suffix=f"_map_{one.id}")


def draw_map(run: Run, table: pd.DataFrame, quantity: str, *, other_run: Run | None = None, **options: Any) -> None:
    """Draw the chart of a table of ``network_values``, with the chosen tensor, its block or its kind outlined."""
    from viz.figures.network.quantities import QUANTITIES

    tensor = selection.chosen_value(address.TENSOR)
    runs = [run, other_run] if other_run else [run]
    described = QUANTITIES[quantity].title_with_unit(other_run is not None)
    chart_view.draw_chart(
        CHART, table, name=f"network_{quantity}_{run.id[:8]}", on_click=partial(_choose_clicked, table),
        quantity=quantity, difference=other_run is not None, experts=list(run.experts), selected=tensor or None,
        sources=runs, description=f"{described}, tensor by tensor.",
        extent=selection.SCOPE_EXTENTS[selection.chosen_scope()], **options,
    )  # fmt: skip
    items = [*list(SCOPES.values())[:3], *selection_pickers.list_views(address.TENSOR)]
    data = {"panel": PANEL_KEY, "items": items}
    open_view = partial(_open_view_here, run.id)
    keys = _register_listener()(key=LISTENER_KEY, data=data, on_press_change=open_view, height=0)
    if keys.press:
        _follow_key(run, table, tensor, str(keys.press))


def _read_table(run: Run, other_run: Run | None, quantity: str, values: pd.Series[Any] | None) -> pd.DataFrame:
    if other_run is None:
        return network_values.read_map(run, quantity) if values is None else network_values.read_map_of(run, values)
    return network_values.read_difference(run, other_run, quantity)


def _choose_clicked(table: pd.DataFrame) -> None:
    """Callback of a click: choose the tensor, the block or the kind of layer, or the expert of the stream."""
    mark = chart_view.read_clicked_mark(CHART) or {}
    if address.TENSOR in mark:
        extent = next((field for field in chart_view.read_other_fields(CHART) if field in SCOPES), "tensor")
        _choose_tensor(table, mark[address.TENSOR], extent)
    chart_view.choose_clicked(CHART)


def _choose_tensor(table: pd.DataFrame, tensor: str, extent: str) -> None:
    """Choose a tensor, its block or its layer in all blocks, for views that show one tensor, one block or one kind."""
    selection.choose_value(address.TENSOR, tensor)
    selection.choose_value(address.ACTION_SCOPE, SCOPES[extent])
    row = table[table["tensor"] == tensor].iloc[0]
    if str(row["section"]).startswith("block "):
        view_state.pick_value(address.BLOCK, str(row["section"]).removeprefix("block "))
    kinds = measurements.TENSOR_KINDS
    roles = kinds.get(str(st.session_state.get(address.TENSOR_KIND)), ())
    if extent == "layer" or (roles and row["role"] not in roles):  # the tensor would be hidden
        fitting = [kind for kind, roles in kinds.items() if row["role"] in roles]
        st.session_state[address.TENSOR_KIND] = (fitting or list(kinds))[0]


def _open_view_here(run_id: str) -> None:
    """Callback of a key: if the menu's view is on this page, choose it before its widgets are drawn, and the run."""
    title = str(st.session_state[LISTENER_KEY].get("press"))
    if title in selection_pickers.list_views(address.TENSOR):
        path, _, _, view = selection_pickers.SELECTION_VIEWS[title]
        if view_state.is_on_page(path):
            run_choice.pick_run(run_id)
            st.session_state.update(view)
            chart_stage.redraw_page()


def _follow_key(run: Run, table: pd.DataFrame, tensor: str, key: str) -> None:
    """Choose the tensor in the direction of an arrow key, or do what the menu of the chosen tensor says."""
    from viz.figures.network.network_map import find_next_tensor

    if key in selection.SCOPE_EXTENTS:
        _choose_tensor(table, tensor, selection.SCOPE_EXTENTS[key])
    elif key in selection_pickers.list_views(address.TENSOR):
        path, _, query = selection_pickers.link_view(key, {address.RUN: run.id})
        if not view_state.is_on_page(path):
            st.switch_page(path, query_params=query | benchmark_choice.link_query())
    elif (chosen := find_next_tensor(table, tensor, key)) != tensor:
        _choose_tensor(table, chosen, "tensor")
    st.rerun()


@cache
def _register_listener() -> Any:
    """The component that listens to the keys on the map and draws its menu, registered once."""
    files = {kind: Path(__file__).with_name(f"network_keys.{kind}").read_text("utf-8") for kind in ("js", "css")}
    return st.components.v2.component("mergescope_network_keys", **files)
