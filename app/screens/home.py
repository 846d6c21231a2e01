"""Home: what this is, three doors into live views, and the library of runs. No chart, so that it is there at once."""

from __future__ import annotations

import streamlit as st

from app import data, parts, text
from merging.runs import PRECOMPUTED, Run

FEW = 12  # runs listed at once

parts.heading(
    "Mergescope",
    "Mergescope merges fine-tuned CLIP vision experts into one model. It shows what the merge did to the network: "
    "which layers were kept and which were masked, and what that cost. Everything runs on this machine, on a bundled "
    "benchmark of real images or on checkpoints of your own.",
)

stored = data.stored()
runs = data.runs(stored)
masked = next((run for run in runs if "saliency" in run.tables), runs[0] if runs else None)
DOORS = (
    (
        "Pick a merge apart",
        "Which tensors does each expert call salient, and which does the merge keep? Move the prune ratio and watch.",
        (parts.MASKS, "Open Masks", "grid_on", {"run": masked.id} if masked else {}),
    ),
    (
        "Which merge wins out of domain?",
        "In-domain against out-of-domain accuracy of several merges, beside the pretrained model and the experts.",
        (parts.SCORES, "Open Scores", "monitoring", {}),
    ),
    (
        "Merge eight experts",
        "Choose experts, chain edits and one merge, press Run. On the bundled benchmark it takes seconds.",
        (parts.MERGE, "Open Merge", "merge", {"chain": "lwptv;ties"}),
    ),
)
with st.grid(3, min_column_width=260):
    for title, sentence, (page, label, icon, query) in DOORS:
        with st.container(border=True, height="stretch"):
            st.markdown(f"**{title}**")
            st.markdown(sentence)
            parts.open_page(page, label, icon, **query)


WIDTHS = [3.6, 1.5, 1.5, 1.5, 2.4]


def row(run: Run) -> None:
    """One run of the library: what it is, its three numbers, where it opens."""
    summary = data.summary(run, stored)
    title, inside, outside, h_score, doors = st.columns(WIDTHS, vertical_alignment="center", gap="small")
    origin = "precomputed" if run.provenance == PRECOMPUTED else "this machine"
    title.markdown(
        f"**{text.safe_text(run.title)}**  \n:small[:gray[{origin}, {text.plural(len(run.experts), 'expert')}]]"
    )
    if summary is None:
        inside.markdown(":gray[not evaluated]")
    else:
        numbers = (summary.in_domain, summary.out_of_domain, summary.h_score)
        for column, number in zip((inside, outside, h_score), numbers, strict=True):
            column.markdown(text.percent(number))
    with doors, st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        parts.open_page(parts.MASKS, "Masks", "grid_on", run=run.id)
        if summary is not None:
            parts.open_page(parts.SCORES, "Scores", "monitoring", runs=run.id)


def library(runs: list[Run]) -> None:
    """The list of runs."""
    own = sum(run.provenance != PRECOMPUTED for run in runs)
    st.caption(
        f"{text.plural(own, 'run')} made on this machine, {len(runs) - own} precomputed. In and Out are mean "
        "accuracies in and out of domain, on the reporting half; Scores has every number with its interval."
    )
    everything = len(runs) <= FEW or st.toggle(f"Show all {len(runs)}", key="all_runs")
    with st.container(border=True, gap="xsmall"):
        for column, name in zip(st.columns(WIDTHS), ("Run", "In", "Out", "H-score"), strict=False):
            column.caption(name)
        for run in runs if everything else runs[:FEW]:
            row(run)


st.subheader("Runs", anchor=False)
if runs:
    library(runs)
else:
    parts.empty("There is no run yet. Merge some experts and the result appears here.", "Merge experts", parts.MERGE)
parts.link()
