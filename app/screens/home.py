"""Home: the map of one merge under a slider, the ways to begin, and the library of runs."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import offered_lessons, page_data, samples
from app.session import address, pages
from app.views.run_page import first_picture
from app.views.runs import run_filters, run_rows
from app.widgets import page_parts

LEFT_OUT = ("size", "weights", "id")  # columns that Models & runs has

page_parts.draw_heading(
    "Mergescope",
    "Merges fine-tuned CLIP vision experts into one model, and shows what the merge did to the network and what that "
    "cost. Everything runs on this machine.",
)

stored = page_data.stored_runs()
runs = page_data.list_merges(stored)
picture_area = st.container()  # filled after the links, which need nothing
with st.container(horizontal=True, gap="medium"):
    page_parts.draw_page_link(pages.MERGE, "Merge eight experts", "merge", chain="lwptv;ties")
    if lesson := offered_lessons.lessons().get("why_merging_hurts"):
        begin = {address.LESSON: lesson.key, address.STEP: "1"}
        label = f"Take a lesson of {lesson.minutes} minutes: why merging hurts"
        page_parts.draw_page_link(offered_lessons.step_page(lesson, 1), label, "school", **begin)
    else:
        view = {address.CONFLICTS_VIEW: "number of tasks"}
        page_parts.draw_page_link(pages.CONFLICTS, "Open Conflicts", "call_split", **view)
    page_parts.draw_page_link(pages.MODELS, "Your own experts", "inventory_2")

with picture_area:
    first_picture.draw_picture(runs, stored)
st.header("Runs", anchor=False)
if runs:
    st.caption(
        f"In and Out are mean accuracies in and out of domain, on the {samples.scored_part()}, and the H-score is "
        f"their harmonic mean; Scores has every number with its interval.{samples.sampling_sentence()}"
    )
    if listed := run_filters.draw_filters(runs, "home"):
        rows = run_rows.build_rows(listed, stored, runs)
        run_rows.draw_table(rows, "home", column_order=[name for name in rows if name not in LEFT_OUT])
        for sentence in page_text.marks_in_words(listed):
            st.caption(sentence)
else:
    page_parts.draw_no_runs()
page_parts.draw_link()
