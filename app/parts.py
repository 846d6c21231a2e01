"""Pieces that every page is made of: heading, run picker, chart with its downloads, empty states, the link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import streamlit as st

from app import benchmarks, data, report, state, text
from merging.errors import first_few
from merging.runs import PRECOMPUTED, Run

if TYPE_CHECKING:
    import pandas as pd

HOME, MERGE, MASKS, CONFLICTS, DRIFT, FEATURES, SCORES, SWEEPS, COMPARE, METHODS, MODELS = (
    f"screens/{name}.py"
    for name in (
        "home", "merge", "masks", "conflicts", "drift", "features", "scores", "sweeps", "compare", "methods", "models",
    )
)  # fmt: skip
FORMATS = ("SVG", "PNG")
ROW = 35  # px of a row of a table


def heading(title: str, sentence: str) -> None:
    """The page's title and what it is for; both are ours."""
    st.title(title, anchor=False)
    st.markdown(sentence)


def open_page(path: str, label: str, icon: str, width: Any = "content", **query: str) -> None:
    """A link to a page with state; it opens in a new tab like any other link."""
    query |= benchmarks.query()
    st.page_link(path, label=label, icon=f":material/{icon}:", query_params=query or None, width=width)


def table_height(rows: int, most: int) -> int:
    """Pixels of a table that shows all of its rows if there are few."""
    return min(ROW * (rows + 1) + 3, most)


def empty(sentence: str, label: str, path: str, **query: str) -> None:
    """What is missing, and the one link that mends it."""
    with st.container(border=True):
        st.markdown(sentence)
        open_page(path, label, "arrow_forward", **query)


def pick_run(
    runs: Sequence[Run], first: Run | None = None, label: str = "Run", say: Callable[[Run], None] | None = None
) -> tuple[Run, bool] | None:
    """The run that the page shows, with a picker and a sentence about it; None if there is none to show.

    ``first`` is shown where neither the link nor the session names one; ``say`` writes the sentence.

    The flag says that it was picked just now, so that the view should start from that run's own values.
    """
    if not runs:
        if asked := state.picked_run([], "").missing:
            missing_runs([asked])
        else:
            empty("There is no run yet. Merge some experts and the result appears here.", "Merge experts", MERGE)
        return None
    by_id = {run.id: run for run in runs}
    picked = state.picked_run(list(by_id), first.id if first else next(iter(by_id)))
    if picked.missing is not None or picked.run_id is None:
        missing_runs([picked.missing or ""])
        return None
    st.session_state["picker"] = picked.run_id  # the picker shows what the link says
    st.selectbox(
        label,
        list(by_id),
        format_func=lambda run_id: text.label(by_id[run_id]),
        key="picker",
        on_change=state.pick_from,
        args=("picker",),
    )
    run = by_id[picked.run_id]
    (say or about)(run)
    return run, picked.fresh


def missing_runs(run_ids: Sequence[str], forget: Callable[[], None] = state.clear_link) -> None:
    """Runs that a link names and this machine lacks, and a way on, which has to ``forget`` them."""
    names = first_few((f"“{text.safe_text(run_id, 20)}”" for run_id in run_ids), 3)
    if any((run := data.store().find(run_id)) and not data.belongs(run) for run_id in run_ids):
        st.warning(
            f"Of what this link asks for, {names} {'is' if len(run_ids) == 1 else 'are'} not of the benchmark that "
            "this page is on. Scores are compared on one benchmark only; choose another one on Models & runs, data.",
            icon=":material/link_off:",
        )
        open_page(MODELS, "Choose the benchmark", "dataset", shelf="data")
        st.button("Show a run that is here", on_click=forget, type="primary")
        return
    st.warning(
        f"This link asks for {'run' if len(run_ids) == 1 else 'runs'} {names}, which this machine does not have. "
        "Whoever sent the link can send the recipe too; the same recipe gives the same run.",
        icon=":material/link_off:",
    )
    st.button("Show a run that is here", on_click=forget, type="primary")


def about(run: Run) -> None:
    """One sentence on the run, and where its numbers come from."""
    st.markdown(f"{text.about(run)} {badges(run)}")
    for line in (line for warning in run.warnings for line in warning.splitlines()):
        st.caption(f":material/info: {text.safe_text(line, 400)}")


def badges(run: Run) -> str:
    """Where a run was computed, on what, and with which seed; Markdown."""
    device = text.safe_text(run.device, 40)
    if run.provenance == PRECOMPUTED:
        found = f":gray-badge[:material/inventory_2: precomputed on {device}]"
    else:
        seconds = text.duration(sum(run.seconds.values()))
        found = f":blue-badge[:material/computer: this machine, {device}, {seconds}]"
    return found if run.seed is None else f"{found} :gray-badge[:material/casino: seed {run.seed}]"


def ask(key: str) -> None:
    """The question that a chart answers, as its heading; for charts whose controls stand under it."""
    from viz.chart import find

    st.subheader(find(key).question, anchor=False)


def chart(
    key: str,
    table: pd.DataFrame,
    *,
    name: str,
    asked: bool = False,
    on_click: Callable[[], None] | None = None,
    lasso: bool = False,
    caption: str = "",
    said: str = "",
    heading: str = "",
    of: report.Of = None,
    **options: Any,
) -> None:
    """A chart under the question that it answers (unless ``asked`` already), with what can be taken away.

    ``name`` is what files are called. ``on_click`` makes marks clickable; the click is read with ``clicked``. With
    ``lasso`` many marks can be chosen at once; they are read with ``circled``. ``caption`` is written under it; the
    report says it, too, after what the page has ``said`` of it elsewhere. Both are Markdown. ``heading`` is the
    report's where the question alone would not tell it from others. ``of`` are the runs and
    sweeps that it is of, where neither its table nor the address says so.
    """
    from viz import theme

    if not asked:
        ask(key)
    figure = data.figure(key, table, {"present": state.present(), **options})
    modes = "lasso" if lasso else "points"  # plotly drops clicks where a lasso can be drawn
    extra: dict[str, Any] = {"on_select": on_click, "selection_mode": modes} if on_click else {}
    form = str(st.session_state.get(f"format_{key}") or FORMATS[0])
    config = theme.config(name, form.lower(), clicks=on_click is not None and not lasso)
    st.plotly_chart(figure, theme=None, key=f"chart_{key}", config=config, alt=figure.layout.meta["alt"], **extra)
    with st.container(horizontal=True, horizontal_alignment="right"):
        st.download_button(
            "Data (CSV)",
            lambda: text.csv_bytes(table),
            f"{name}.csv",
            "text/csv",
            key=f"csv_{key}",
            on_click="ignore",
            type="tertiary",
            icon=":material/table:",
            help="Exactly the table that is drawn.",
        )
        with st.popover("Figure", icon=":material/photo_camera:", type="tertiary", help="Save the figure"):
            st.segmented_control("Save as", FORMATS, default=FORMATS[0], key=f"format_{key}", required=True)
            st.caption("The camera in the chart's upper right corner, which shows under the pointer, saves it.")
        report.button(key, table, options, f"{said} {caption}".strip(), of, heading)
        link()
    if caption:
        st.caption(caption)


def clicked(key: str) -> dict[str, str] | None:
    """What the last click on the chart ``key`` chose, by field; None for the empty selection after a redraw."""
    from viz.chart import find

    return find(key).picked(st.session_state[f"chart_{key}"].selection.points)


def circled(key: str) -> list[dict[str, str]]:
    """What the last selection on the chart ``key`` chose, by field, mark by mark; empty after a redraw."""
    from viz.chart import find

    chart = find(key)
    points = st.session_state[f"chart_{key}"].selection.points
    return [picked for point in points if (picked := chart.picked([point]))]


def link() -> None:
    """The address that restores this view."""
    with st.popover("Link", icon=":material/link:", type="tertiary", help="A link that restores this view"):
        query = urlencode(st.query_params.to_dict())
        address = (st.context.url or "http://localhost:8501/").split("?")[0]
        st.code(f"{address}?{query}" if query else address, language=None, wrap_lines=True)
        st.caption("It also is the address of this page. It names runs by their recipe, so it works wherever they are.")


def recipe_buttons(run: Run, key: str) -> None:
    """A run's recipe, one click away: to read, to take along, to build on."""
    with st.popover("Recipe", icon=":material/receipt_long:", type="tertiary"):
        st.code(run.recipe_yaml, language="yaml")
        st.download_button(
            "Download", lambda: run.recipe_yaml, f"{run.id}.yaml", "text/yaml", key=f"yaml_{key}", on_click="ignore"
        )
        st.caption(f"On a command line: `python -m merging run {run.id}.yaml`")
