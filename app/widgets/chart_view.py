"""A chart with its question, downloads and clicks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from app import page_text
from app.reading import expert_names, figures, report_sources
from app.saving import csv_files as data_file
from app.saving import figure_files as figure_file
from app.saving import provenance
from app.saving.shown_chart import ShownChart
from app.session import run_styles, selection, view_state
from app.widgets import chart_recorder, chart_stage, report_button
from app.widgets.page_parts import draw_page_link, explain_words, page_cautions
from app.widgets.view_link import draw_code_menu, draw_link_menu

if TYPE_CHECKING:
    import pandas as pd

    from app.widgets.paper_line import ClaimsText
    from viz.chart import Chart

MAX_TAKEAWAY = 220  # characters of the line under a chart's title
SHOWN_SENTENCES = 2  # of a caption; a click opens the others
CHOSEN_FIELDS = {  # of clicked marks
    "tensor": selection.TENSOR, "task": selection.EXPERT, "expert": selection.EXPERT, "class": selection.CLASS,
}  # fmt: skip
MARKED_COLUMNS = {
    selection.TENSOR: ("tensor",), selection.EXPERT: ("expert", "task", "row"), selection.CLASS: ("class", "group"),
    selection.IMAGE: ("image",),
}  # fmt: skip
FILM_STYLE = """<style>
@keyframes film {{ {steps} }}
.st-key-film {{ --shown: {last}; animation: film {seconds}s step-end infinite; }}
.st-key-film {{ display: grid; grid-template-columns: minmax(0, 1fr); }}
.st-key-film > * {{ --near: calc(1 - max(var(--shown) - var(--place), var(--place) - var(--shown))); }}
.st-key-film > * {{ grid-area: 1 / 1; width: 100%; opacity: var(--near); z-index: var(--near); }}
{places}</style>"""  # the last picture where motion is reduced
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Gesture(NamedTuple):
    """A way to choose marks, and the callback after it.

    ``area`` is "lasso" to choose many marks, which ``read_circled_marks`` returns; "box" to draw a rectangle, which
    ``read_boxes`` returns; or empty for clicks on single marks.
    """

    area: str
    callback: Callable[[], None] | None


def _find_chart(key: str) -> Chart:
    from viz.chart_registry import find  # loads what draws charts

    return find(key)


def fix_colors(key: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the chart ``key``, with full ordered lists in place of those of the runs and experts it draws."""
    accepted, fixed = _find_chart(key).options, dict(options)
    if options.get("runs"):
        fixed["runs"] = run_styles.order_by_slot(list(options["runs"]))
    if "pinned" in accepted:
        fixed["pinned"] = run_styles.pins()
    for name in ("experts", "tasks"):
        if name in accepted and (full_list := expert_names.list_in_order(options.get(name) or ())):
            fixed[name] = full_list
    return fixed


def mark_selection(key: str, table: pd.DataFrame, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the chart ``key`` with what the visitor has chosen, as far as the table has it."""
    values = {kind: value for kind in selection.NOUNS if (value := selection.chosen_value(kind))}
    names = {kind: (value, expert_names.expert_name(value)) for kind, value in values.items()}
    columns = {kind: [name for name in MARKED_COLUMNS[kind] if name in table] for kind in names}
    found = {kind: pair for kind, pair in names.items() if table[columns[kind]].isin(pair).any(axis=None)}
    for kind in found:
        selection.note_shown(kind)
    chosen = {"class" if kind == selection.CLASS else kind: pair for kind, pair in found.items()}
    cell = tuple(values[kind] if kind in found else None for kind in (selection.EXPERT, selection.TENSOR))
    return ({"selected": cell} if _takes_cell(key) else {}) | ({"chosen": chosen} if chosen else {}) | dict(options)


def _takes_cell(key: str) -> bool:
    """Whether the marks of the chart ``key`` are cells of an expert and a tensor."""
    return _find_chart(key).options.get("selected") == (None, None)


def draw_question(key: str, width: Any = "stretch", help_text: str | None = None) -> None:
    """Draw a chart's question as its heading, for charts with controls between question and picture."""
    st.header(_find_chart(key).question, anchor=False, width=width, help=help_text)


def draw_chart(
    key: str,
    table: pd.DataFrame,
    *,
    name: str,
    question_drawn: bool = False,
    on_click: Callable[[], None] | Gesture | None = None,
    caption: str = "",
    description: str = "",
    heading: str = "",
    claims: ClaimsText | None = None,
    sources: report_sources.ChartSources = None,
    **options: Any,
) -> None:
    """Draw a chart under its question (unless ``question_drawn`` says that the page has drawn it), with its downloads.

    ``name`` is the files' name. ``on_click`` makes marks clickable (see ``read_clicked_mark``); without it, a click
    chooses the mark's tensor, expert or class. A line from the figure's alt text states what is seen. A click opens all
    but the first two sentences of ``caption``, the text under the chart; in the report it follows ``description``, the
    page's other text about it. Both are Markdown. ``heading`` is the report's heading, for charts that their question
    does not distinguish. ``claims`` of papers are drawn below, and follow the description in the report.
    ``sources`` are the runs and sweeps in the chart, if neither table nor address names them.
    """
    chart_stage.rerun_if_changed()
    presenting = view_state.is_single_chart()
    if presenting and not chart_stage.is_single_chart(key):
        return
    if not question_drawn and not presenting:
        draw_question(key)
    options = fix_colors(key, mark_selection(key, table, options))
    table, options, keys_by_name = expert_names.show_names(table, options)
    st.session_state[f"names_{key}"] = keys_by_name
    words = " ".join(filter(None, (description, claims, caption)))
    chart = ShownChart(
        key, table, options, keys_by_name, name, words, view_state.relative_address(), page_cautions(), sources, heading
    )
    chart_recorder.note_chart(chart)
    if on_click is None and CHOSEN_FIELDS.keys() & set(_find_chart(key).picks):
        on_click = partial(choose_clicked, key)
    gesture = on_click if isinstance(on_click, Gesture) else Gesture("", on_click)
    if presenting:
        _draw_presented(chart, gesture)
        return
    _draw_picture(chart, gesture, f"chart_{key}")
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        data_file.draw_csv_buttons(chart)
        figure_file.draw_save_menu(chart)
        chart_stage.draw_present_button(key)
        report_button.draw_report_button(chart)
        draw_link_menu(chart)
        draw_code_menu(chart)
    _draw_caption(caption, key)
    if claims:
        from app.widgets import paper_line  # loads what computes our numbers, which few charts need

        paper_line.draw_claims(claims, sources or ())


def draw_live_chart(
    key: str, table: pd.DataFrame, job_id: str, *, name: str, caption: str = "", **options: Any
) -> None:
    """Draw a chart of a live job, under its question, with its data; draws nothing while a chart is presented.

    The page can also show this chart for a stored run and for other jobs. It changes every few seconds and cannot be
    added to the report.
    """
    if view_state.is_single_chart():
        return
    draw_question(key)
    shown = expert_names.show_names(table, fix_colors(key, mark_selection(key, table, options)))
    chart = ShownChart(key, *shown, name, caption, view_state.relative_address(), sources=())
    suffix = f"{key}_{job_id}"
    _draw_picture(chart, Gesture("", None), f"chart_{suffix}")
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        data_file.draw_csv_buttons(chart, key_suffix=f"_{job_id}")
    _draw_caption(caption, suffix)


def _draw_caption(caption: str, position: str) -> None:
    """Draw the first sentences of a caption, and the others folded; ``position`` is the caption's on the page."""
    sentences = page_text.split_sentences(caption)
    first, other = (" ".join(part) for part in (sentences[:SHOWN_SENTENCES], sentences[SHOWN_SENTENCES:]))
    if first:
        st.caption(explain_words(first, position))
    if other:
        with st.expander("More about this chart", type="compact"):
            st.caption(explain_words(other, f"{position}_more"))


def find_takeaway(alt: str, words: str) -> str:
    """What a figure shows, the second sentence of its alt text; empty without numbers, or if ``words`` have them."""
    sentences = page_text.split_sentences(alt)
    first_parts = sentences[0].partition(": ") if sentences else ("", "", "")
    takeaway = sentences[1] if len(sentences) > 1 else sentences[0] if NUMBER.search(first_parts[2]) else ""
    numbers = set(NUMBER.findall(takeaway))
    is_repeated = 2 * len(numbers & set(NUMBER.findall(words))) > len(numbers)
    return "" if not numbers or is_repeated or len(takeaway) > MAX_TAKEAWAY else takeaway


def draw_small_chart(
    key: str, table: pd.DataFrame, height: int, page: str, icon: str, query: Mapping[str, str], **options: Any
) -> None:
    """Draw a chart ``height`` px high, without legend and downloads; its question leads to the page that has them."""
    from viz import theme

    if view_state.is_single_chart():
        return
    table, options, _ = expert_names.show_names(table, fix_colors(key, options))
    figure = figures.draw_small_figure(key, table, options, view_state.has_dark_ground(), height)
    draw_page_link(page, _find_chart(key).question, icon, **query)
    config = theme.config(key) | {"displayModeBar": False}
    st.plotly_chart(figure, theme=None, key=f"small_{key}", config=config, alt=figure.layout.meta["alt"])


def draw_film(key: str, pictures: Sequence[tuple[pd.DataFrame, Mapping[str, Any]]], seconds: float) -> None:
    """Draw a chart with several tables and options at one place, each visible for some seconds, again and again.

    The browser has them all, so that nothing is empty for a moment, as it would be if a redraw put a new one there.
    """
    from viz import theme

    count = len(pictures)
    steps = " ".join(f"{100 * place / count:.4f}% {{ --shown: {place}; }}" for place in range(count))
    places = "".join(f".st-key-film > :nth-child({place + 1}) {{ --place: {place}; }}" for place in range(count))
    st.html(FILM_STYLE.format(steps=steps, last=count - 1, seconds=seconds * count, places=places))
    with st.container(key="film"):
        for number, (table, options) in enumerate(pictures):
            shown, fixed, _ = expert_names.show_names(table, fix_colors(key, options))
            figure = figures.draw_page_figure(key, shown, fixed, view_state.has_dark_ground())
            config = theme.config(key) | {"displayModeBar": False}
            st.plotly_chart(figure, theme=None, key=f"film_{number}", config=config, alt=figure.layout.meta["alt"])


def _draw_picture(
    chart: ShownChart, gesture: Gesture, suffix: str, stage: chart_stage.ChartStage | None = None
) -> None:
    """Draw the figure of a chart."""
    from viz import theme

    dark, options = view_state.has_dark_ground(), {"present": stage is not None, **chart.options}
    if stage:
        figure = stage.fit_figure(figures.draw_figure(chart.key, chart.table, options, dark))
    else:
        figure = figures.draw_page_figure(chart.key, chart.table, options, dark)
    if stage is None and (takeaway := find_takeaway(figure.layout.meta["alt"], chart.caption)):
        st.markdown(page_text.safe_text(takeaway, MAX_TAKEAWAY))
    config = theme.config(chart.name, clicks=bool(gesture.callback and not gesture.area), camera=not dark)
    selection_options: dict[str, Any] = {"on_select": gesture.callback, "selection_mode": gesture.area or "points"}
    st.plotly_chart(
        figure,
        theme=None,
        key=suffix,
        config=config,
        alt=figure.layout.meta["alt"],
        **(selection_options if gesture.callback else {}),
    )


def _draw_presented(chart: ShownChart, gesture: Gesture) -> None:
    """Draw a chart that fills the window, with its line of provenance."""
    with chart_stage.draw_stage() as stage:
        if not stage.bare and not chart_stage.draw_words(stage):
            draw_question(chart.key)
        _draw_picture(chart, gesture, f"chart_{chart.key}", stage)
        st.caption(page_text.safe_text(provenance.provenance_line(chart), 300))


def read_clicked_mark(key: str) -> dict[str, str] | None:
    """The fields of the mark last clicked on the chart ``key``; None for the empty selection after a redraw."""
    picked = _find_chart(key).read_pick(st.session_state[f"chart_{key}"].selection.points)
    return None if picked is None else expert_names.keys_of_mark(picked, st.session_state[f"names_{key}"])


def read_other_fields(key: str) -> list[Any]:
    """The fields of the mark last clicked on the chart ``key`` after those of ``read_clicked_mark``."""
    (point,) = st.session_state[f"chart_{key}"].selection.points[:1]
    return list(point["customdata"].values())[len(_find_chart(key).picks) :]


def choose_clicked(key: str) -> None:
    """Callback of a click on the chart ``key``: choose the tensor, the expert or the class that the mark names."""
    mark = read_clicked_mark(key) or {}
    if mark and _takes_cell(key):
        selection.choose_value(selection.EXPERT, mark.get("expert"))  # a mask of all experts belongs to none
    for field, kind in CHOSEN_FIELDS.items():
        if field in mark and (field != "task" or expert_names.has_expert(mark[field])):
            selection.choose_value(kind, mark[field])
            chart_stage.redraw_page()  # other charts mark it, too


def read_boxes(key: str) -> list[dict[str, Any]]:
    """The rectangles last drawn on the chart ``key``, each with its axes and ranges; empty after a redraw."""
    return [dict(box) for box in st.session_state[f"chart_{key}"].selection.box]


def read_circled_marks(key: str) -> list[dict[str, str]]:
    """The fields of each mark in the last selection on the chart ``key``; empty after a redraw."""
    chart = _find_chart(key)
    points = st.session_state[f"chart_{key}"].selection.points
    keys_by_name = st.session_state[f"names_{key}"]
    return [expert_names.keys_of_mark(picked, keys_by_name) for point in points if (picked := chart.read_pick([point]))]
