"""Pickers of the selection, links to other views of it, and the note on pages that do not show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names
from app.session import address, pages, run_choice, selection
from app.widgets import chart_stage, page_parts
from merging.models.families import stored_tensor_name

if TYPE_CHECKING:
    import pandas as pd

ALL_TOWERS = "all"
SALIENCY_CHART = "saliency of one tensor"
SELECTION_VIEWS = {  # title -> page, icon, kinds that the view shows, query of the view
    "Masks": (pages.MASKS, "grid_on", {address.TENSOR, address.EXPERT}, {}),
    "Conflicts": (pages.CONFLICTS, "call_split", {address.TENSOR}, {address.CONFLICTS_VIEW: "sign agreement"}),
    "Drift": (pages.DRIFT, "moving", {address.TENSOR, address.EXPERT}, {address.DRIFT_VIEW: "layer by layer"}),
    "Put back": (pages.DRIFT, "undo", {address.TENSOR}, {address.DRIFT_VIEW: "put back"}),
    "Features": (pages.FEATURES, "scatter_plot", {selection.IMAGE, selection.CLASS}, {}),
    "Compare": (
        pages.COMPARE,
        "compare",
        {address.TENSOR},
        {address.COMPARE_VIEW: "charts", address.CHART: SALIENCY_CHART},
    ),
    "Image": (pages.IMAGE, "image_search", {selection.IMAGE, selection.CLASS, address.TENSOR}, {}),
    "Images": (pages.COMPARE, "image", {selection.IMAGE, selection.CLASS}, {address.COMPARE_VIEW: "images"}),
}


def pick_selected(
    kind: str, names: Sequence[str], label: str, *, first: str | None = None, placeholder: str = "",
    width: Any = "stretch", plural_noun: str = "",
) -> str | None:  # fmt: skip
    """A picker of one of ``names``, which begins with the selection, else with ``first``.

    If the selection is not among ``names``, a caption reports it; ``plural_noun`` is the plural noun for ``names``,
    such as "linear layers".
    """
    selection.note_shown(kind)
    chosen = selection.chosen_value(kind)
    matching_name = _find_among(kind, chosen, names)
    value = matching_name or first
    placeholder = placeholder or (selection.PICK_HINT.format("a tensor") if kind == address.TENSOR else "None")
    options = [*names] if first else [None, *names]  # a picker without None cannot be cleared
    key = selection.picker_key(kind, value)
    with st.container(width=width, gap="xsmall"):
        picked: str | None = st.selectbox(
            label, options, options.index(value) if value in options else None,
            lambda name: _name_of(kind, name) if name else placeholder,
            key=key, on_change=choose_picked, args=(kind, key),
        )  # fmt: skip
        if chosen and not matching_name:
            st.caption(
                f"{page_text.safe_text(_name_of(kind, chosen), 80)} is not among these "
                f"{plural_noun or label.lower() + 's'}."
            )
    return picked


def choose_picked(kind: str, key: str) -> None:
    """Callback of a picker in a part of the page: choose its value, and redraw the map of the network with it."""
    selection.choose_from_picker(kind, key)
    chart_stage.redraw_page()


def _find_among(kind: str, chosen: str, names: Sequence[str]) -> str:
    """The selection, if it is among ``names``; else the packed tensor of a query, key or value, or the reverse.

    Else empty.
    """
    if chosen in names or kind != address.TENSOR:
        return chosen if chosen in names else ""
    packed_name = stored_tensor_name(chosen)
    return next((name for name in names if chosen and packed_name in (name, stored_tensor_name(name))), "")


def draw_view_links(current_title: str, kind: str, **query: str) -> None:
    """Links to the other views of the selection; ``current_title`` is this view's title; all links have ``query``."""
    if not selection.chosen_value(kind):
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"{kind}_views"):
        st.caption(f"This {selection.NOUNS[kind]} on", width="content")
        for title in list_views(kind):
            if title != current_title:
                path, icon, link = link_view(title, query)
                page_parts.draw_page_link(path, title, icon, **link)


def list_views(kind: str) -> list[str]:
    """The titles of the views that show the selection of this kind."""
    return [title for title, (_, _, kinds, _) in SELECTION_VIEWS.items() if kind in kinds]


def link_view(title: str, query: Mapping[str, str]) -> tuple[str, str, dict[str, str]]:
    """The page of a view of the selection, its icon, and the query of a link to it with this ``query``."""
    path, icon, _, view = SELECTION_VIEWS[title]
    shown = {address.RUNS: query[address.RUN]} if path == pages.DRIFT and address.RUN in query else {}
    return path, icon, {**query, **shown, **view, **_selection_query()}


def draw_not_shown() -> None:
    """The selection that this page does not show, links to views that do, and a button that clears it."""
    kinds = selection.kinds_not_shown()
    if not kinds:
        return
    with st.container(border=True, gap="xsmall", key="selection"):
        for kind in kinds:
            st.caption(
                f"Chosen {selection.NOUNS[kind]}: "
                f"**{page_text.safe_text(_name_of(kind, selection.chosen_value(kind)), 80)}**"
            )
        st.caption("Not shown in this view, but on")
        run = {address.RUN: run_choice.chosen_run()} if run_choice.chosen_run() else {}  # for links in a new tab
        with st.container(horizontal=True, gap="small"):
            for title, (path, icon, shown, view) in SELECTION_VIEWS.items():
                if shown & set(kinds):
                    page_parts.draw_page_link(path, title, icon, **run, **view, **_selection_query())
        st.button("Choose nothing", key="clear_selection", on_click=selection.clear_selection, type="tertiary")


def _name_of(kind: str, value: str) -> str:
    """The selection's name on pages; links have the expert's key."""
    return expert_names.expert_name(value) if kind == selection.EXPERT else value


def _selection_query() -> dict[str, str]:
    return {kind: selection.chosen_value(kind) for kind in selection.KINDS if selection.chosen_value(kind)}


def pick_tower(sections: pd.Series) -> str:
    """A picker of one tower of a network by its sections; "" for all, and where there is one tower.

    Tensors outside of the towers, such as a shared vocabulary, are only shown with all towers.
    """
    towers = list(sections.astype(str).str.extract(r"^(.+) block \d+$")[0].dropna().unique())
    if len(towers) < 2:
        return ""
    chosen = page_parts.pick_button("Tower", [ALL_TOWERS, *towers], address.TOWER)
    return chosen if chosen in towers else ""
