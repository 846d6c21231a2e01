"""The map of the network above a view: one picture from which a tensor is chosen, by click or by arrow keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading.runs import network_values
from app.session import address, selection
from app.widgets import chart_stage, chart_view
from app.widgets.jobs import measure_button
from merging.base.errors import CheckpointError
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

CHART, PANEL_KEY = "network_map", "network_panel"
SCRIPT = Path(__file__).with_name("network_keys.js")
NOT_MEASURED = "This quantity has not been measured for"
KEYS_HINT = "Click a tensor, or press the arrow keys on the map; Enter goes to the links to its views."


def draw_panel(
    run: Run, preferred: Sequence[str], *, other_run: Run | None = None, compact: bool = True, result: str = ""
) -> None:
    """Draw the map of a run, or of another run's difference from it; a click chooses a tensor or an expert.

    ``preferred`` are the keys of quantities, of which the first that is stored is shown at first. Call it outside of
    fragments, since a click changes the whole page. ``result`` is the text at the end of a map that is not compact.
    """
    from viz.figures.network.quantities import QUANTITIES

    if compact and chart_stage.is_other_presented(CHART):
        return
    with st.container(key=PANEL_KEY, gap="small" if compact else "xsmall"):
        quantities = network_values.list_quantities(run)
        if not quantities:
            return
        first = network_values.choose_quantity(run, preferred)
        titles = [QUANTITIES[key].title for key in quantities]
        if st.session_state.get(address.NETWORK_QUANTITY) not in titles:  # of another run, which has other quantities
            st.session_state.pop(address.NETWORK_QUANTITY, None)
        keys_by_title = {QUANTITIES[key].title: key for key in quantities}
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            title = st.selectbox(
                "Map of the network", keys_by_title, quantities.index(first), key=address.NETWORK_QUANTITY,
                bind=address.BIND, width=360, label_visibility="collapsed",
            )  # fmt: skip
            by_area = st.toggle("Areas by scalars", key=address.NETWORK_AREAS, bind=address.BIND, help=KEYS_HINT)
        quantity = keys_by_title[title]
        try:
            table = _read_table(run, other_run, quantity)
        except CheckpointError as error:
            st.caption(f"Not shown: {page_text.safe_text(error, 600)}")
            return
        draw_map(run, table, quantity, other_run=other_run, compact=compact, by_area=by_area, result=result)
        for one in (run, *([other_run] if other_run else [])):
            if missing := network_values.find_missing_measurement(one, quantity):
                measure_button.draw_missing(missing, [one], NOT_MEASURED, suffix=f"_map_{one.id}")


def draw_map(run: Run, table: pd.DataFrame, quantity: str, *, other_run: Run | None = None, **options: Any) -> None:
    """Draw the chart of a table of ``network_values``, with the chosen tensor outlined."""
    from viz.figures.network.quantities import QUANTITIES

    tensor = selection.chosen_value(address.TENSOR)
    if tensor in set(table["tensor"]):
        selection.note_shown(address.TENSOR)
    runs = [run, other_run] if other_run else [run]
    shown = QUANTITIES[quantity].title_with_unit(other_run is not None)
    chart_view.draw_chart(
        CHART, table, name=f"network_{quantity}_{run.id[:8]}", question_drawn=bool(options.get("compact")),
        on_click=_choose_clicked, quantity=quantity, difference=other_run is not None, experts=list(run.experts),
        selected=tensor or None, sources=runs, description=f"{shown}, tensor by tensor.", **options,
    )  # fmt: skip
    keys = _register_listener()(key="network_keys", data={"panel": PANEL_KEY}, on_move_change=lambda: None, height=0)
    if keys.move:
        _choose_neighbor(table, tensor, str(keys.move))


def _read_table(run: Run, other_run: Run | None, quantity: str) -> pd.DataFrame:
    if other_run is None:
        return network_values.read_map(run, quantity)
    return network_values.read_difference(run, other_run, quantity)


def _choose_clicked() -> None:
    """Callback of a click: choose the tensor, or the expert of the stream."""
    if mark := chart_view.read_clicked_mark(CHART):
        for kind in (address.TENSOR, address.EXPERT):
            if kind in mark:
                selection.choose_value(kind, mark[kind])


def _choose_neighbor(table: pd.DataFrame, tensor: str, direction: str) -> None:
    """Choose the tensor next to the chosen one, and draw the page again."""
    from viz.figures.network.network_map import find_next_tensor

    if (chosen := find_next_tensor(table, tensor, direction)) != tensor:
        selection.choose_value(address.TENSOR, chosen)
        st.rerun()


@cache
def _register_listener() -> Any:
    """The component that listens to the arrow keys on the map, registered once."""
    return st.components.v2.component("mergescope_network_keys", js=SCRIPT.read_text("utf-8"))
