"""The table of a published experiment: our numbers beside the papers', downloads, and a link to its benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading.papers import experiments
from app.session import benchmark_choice, pages
from app.widgets import page_parts
from merging.base.errors import MergingError
from viz.figure_text import clean_text

if TYPE_CHECKING:
    from merging.sharing.published.comparison_table import PublishedTable
    from merging.sharing.published.experiment_catalogue import Experiment

MAX_GRID_HEIGHT = 460  # px of the table by task


def draw_table(experiment: Experiment) -> None:
    """Draw the table of the rows computed so far, if there are any."""
    try:
        table = experiments.computed_table(experiment)
    except MergingError as error:
        st.error(page_text.safe_text(error, 800), icon=":material/error:")
        return
    if table is None:
        return
    st.header("Ours beside the papers’", anchor=False)
    _draw_numbers(table)
    _draw_downloads(table)
    _draw_benchmark_link(experiment)


def _draw_numbers(table: PublishedTable) -> None:
    """Draw the averages with their verdicts, the accuracies of every row task by task, and notes."""
    from merging.sharing.published.experiment_texts import table_rows, table_sentences, task_rows

    summary, *notes = table_sentences(table)
    st.markdown(page_text.safe_text(summary, 400))
    averages = table_rows(table)
    _draw_grid(averages, "Averages of every row with intervals, printed values and verdicts")
    st.markdown("**Task by task**")
    _draw_grid(task_rows(table), "Accuracies of every row, task by task", MAX_GRID_HEIGHT)
    st.caption("  \n".join(page_text.safe_text(note, 600) for note in notes))


def _draw_grid(rows: Sequence[Sequence[str]], alt: str, max_height: int | None = None) -> None:
    """Draw rows, of which the first is the header, without empty columns; ``max_height`` is in px."""
    header, *lines = rows
    names = _make_titles_distinct(header)
    used_columns = [index for index, name in enumerate(names) if index == 0 or any(line[index] for line in lines)]
    cells = [{names[index]: clean_text(line[index], 300) for index in used_columns} for line in lines]
    text = st.column_config.TextColumn
    columns = {names[0]: text(pinned=True, width=170), "Verdict": text(width=330)}
    height = "content" if max_height is None else page_parts.table_height(len(lines), max_height)
    page_parts.draw_table(cells, alt, columns, height)


def _make_titles_distinct(header: Sequence[str]) -> list[str]:
    """Names of columns. A name that recurs, out of domain and then for the H-score, gets a suffix."""
    names: list[str] = []
    for name in header:
        title = name[:1].upper() + name[1:]
        while title in names:
            title += ", out" if not title.endswith(", out") else " (H-score)"
        names.append(title)
    return names


def _draw_downloads(table: PublishedTable) -> None:
    """Draw buttons that download the numbers as files."""
    from merging.sharing.published.experiment_texts import table_csv, table_markdown

    files = {"Markdown": ("md", "text/markdown", table_markdown), "CSV": ("csv", "text/csv", table_csv)}
    with st.container(horizontal=True):
        for label, (ending, kind, write) in files.items():
            st.download_button(
                f"Table ({label})", lambda write=write: write(table), f"{table.experiment}.{ending}", kind,
                key=f"pub_{ending}_{table.experiment}", on_click="ignore", type="tertiary", icon=":material/table:",
            )  # fmt: skip


def _draw_benchmark_link(experiment: Experiment) -> None:
    """Draw a button that switches to the experiment's benchmark, or a link to its scores."""
    key = experiments.benchmark_key(experiment)
    if not key:
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        if experiments.open_experiment() is experiment:
            st.markdown("Every page now works on these models and images.")
            page_parts.draw_page_link(pages.SCORES, "Scores", "monitoring")
        else:
            st.markdown("Its models, images and runs can be opened on every page.")
            st.button(
                "Open its benchmark",
                key=f"pub_open_{experiment.key}",
                on_click=benchmark_choice.switch_benchmark,
                args=(key,),
            )
