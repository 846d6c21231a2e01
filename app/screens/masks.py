"""Masks: the saliency of every expert's tensors, the tensors that a run keeps, and one tensor in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, recipes
from app.session import address, pages, painting_state
from app.session.click_errors import guarded_fragment
from app.views.masks import kept_share, paint
from app.widgets import chart_view, page_parts, paper_line, run_picker, selection_pickers
from app.widgets.panels import network_panel, put_back_panel
from merging.base.errors import CheckpointError
from merging.study.runs.run import Run
from viz.figure_text import plural, role_name

if TYPE_CHECKING:
    import pandas as pd

# Label in pickers and links -> name in charts.
TENSOR_ORDERS = {"forward order": "order", "block, kinds aligned": "block", "kind of layer": "part"}
FIRST_RUN_PRESETS = ("task_arithmetic_lwptv",)  # presets of the run that is shown at first, if such a run is stored
FIRST_QUANTITIES = ("final_mask", "own_mask", "saliency", "kept_share")  # of the map, the first one that is stored
NOT_MEASURED = "This run did not prune tensors, and its task vectors cannot be measured."
KEPT_SHARE_GROUPS = {"role": "role", "kind of layer": "part", "attention, MLP, other": "component"}

page_parts.draw_heading(
    "Masks", "One run's task vectors, tensor by tensor: what pruning drops, what it keeps, and for which experts."
)


@guarded_fragment
def draw_masks(run: Run, fresh: bool, candidate_runs: list[Run]) -> None:
    """The live chart: a change of the ratio redraws the masks from the stored saliency, without a new merge."""
    from merging.methods.shared.saliency import apply_ratio, join_thirds
    from merging.recipes.presets import read_settings

    ratio, shared = read_settings(run.recipe)
    try:
        stored, masked = page_data.saliency(run, candidate_runs)
    except CheckpointError as error:
        st.info(f"{NOT_MEASURED} {page_text.safe_text(error, 600)}")
        network_panel.draw_panel(run, FIRST_QUANTITIES)
        return
    if not masked:
        st.info(f"{kept_share.unpruned_in_words(run)} Below are the masks that pruning its task vectors would give.")
    experts = list(dict.fromkeys(stored["expert"]))
    map_area = st.container()
    if fresh:  # picked just now: its own ratio replaces the one in the slider
        st.session_state[address.RATIO], st.session_state[address.SHARED_MASK] = ratio, shared
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        chosen: float = st.slider("Prune ratio", 0.0, 1.0, ratio, 0.01, key=address.RATIO, bind=address.BIND, width=320)
        one_mask = st.toggle("One mask for all experts", shared, key=address.SHARED_MASK, bind=address.BIND)
        order = TENSOR_ORDERS[
            st.selectbox("Tensors in order of", TENSOR_ORDERS, key=address.TENSOR_ORDER, bind=address.BIND, width=230)
        ]
        tower = selection_pickers.pick_tower(stored["section"])
        painting = paint.draw_paint_switch()
    table = apply_ratio(stored, chosen, one_mask)
    # a packed tensor has a row each for query, key and value, but only one factor can be painted on it
    whole = join_thirds(table)
    shown = whole if painting else table
    if not painting:  # the canvas has its own map
        masks = whole.set_index(["tensor", "expert"]).rename(columns={"kept": "own_mask", "final": "final_mask"})
        with map_area:
            network_panel.draw_panel(run, FIRST_QUANTITIES, shown=dict(masks[["own_mask", "final_mask"]].items()))
    if tower and not painting:
        shown = shown[shown["section"].str.startswith(f"{tower} ")]
    tensors = list(dict.fromkeys(shown["tensor"]))
    words = kept_share.kept_in_words(table, chosen, ratio if masked else None)
    st.markdown(words)
    chart_area, painting_area = st.container(), st.container()  # the pictures need the pickers below them
    with st.container(horizontal=True, gap="medium"):
        tensor = selection_pickers.pick_selected(address.TENSOR, tensors, "Tensor", width=380)
        expert = selection_pickers.pick_selected(address.EXPERT, experts, "Expert", width=220)
    selection_pickers.draw_view_links("Masks", address.TENSOR, run=run.id)
    with chart_area:
        name, cell, paper_claims = f"masks_{run.id[:8]}", (expert, tensor), paper_line.claims_in_words("masks/saliency")
        chart_view.draw_chart(
            "saliency_matrix", shown, name=name, selected=cell, group=order,
            guides=painting, description=f"{words} {paper_claims}", sources=[run],
        )  # fmt: skip
        paper_line.draw_claims(paper_claims, [run])
    if painting:
        with painting_area:
            run_mask = join_thirds(apply_ratio(stored, ratio, shared)) if masked else None
            paint.draw_painting(run, shown, chosen, run_mask, order, qkv_separate=len(shown) < len(table))
    if tensor:
        draw_tensor(run, shown[shown["tensor"] == tensor], tensor, expert, experts)
    put_back_panel.draw_panel(run, tensor, "masks")
    draw_kept_shares(kept_share.list_tensors_by_masks(table), run, chosen)


def draw_tensor(run: Run, rows: pd.DataFrame, tensor: str, expert: str | None, experts: list[str]) -> None:
    """One tensor's numbers for every expert."""
    first = rows.iloc[0]
    keeping_experts = int(rows["kept"].sum())
    description = f"{first['numel']:,} scalars, {role_name(first['role'])} in {page_text.safe_text(first['section'])}"
    words = (
        f"**{page_text.safe_text(tensor, 120)}**, {description}: {keeping_experts} of {plural(len(rows), 'expert')} "
        f"{'keeps' if keeping_experts == 1 else 'keep'} it."
    )
    st.markdown(words)
    chart_view.draw_chart(
        "saliency_tensor", rows, name="saliency_tensor", tensor=tensor, selected=expert, experts=experts,
        description=words, sources=[run],
    )  # fmt: skip
    st.dataframe(
        rows[["expert", "saliency", "threshold", "kept", "final"]].replace({"expert": expert_names.data_set_titles()}),
        hide_index=True,
        column_config={
            "saliency": st.column_config.NumberColumn("Saliency", format="%.3e"),
            "threshold": st.column_config.NumberColumn("Threshold", format="%.3e"),
            "kept": st.column_config.CheckboxColumn("Kept by its own mask"),
            "final": st.column_config.CheckboxColumn("Merged"),
            "expert": "Expert",
        },
        alt="Saliency of the chosen tensor for every expert",
    )


def draw_kept_shares(table: pd.DataFrame, run: Run, ratio: float) -> None:
    """The kept shares, from the masks in the chart or from the merged weights."""
    chart_view.draw_question("kept_share")
    sources = {"masks": "the masks above", "weights": "the merged weights"}
    first = "weights" if kept_share.FACTORS in run.tables else "masks"
    with st.container(horizontal=True, gap="medium"):
        group = KEPT_SHARE_GROUPS[
            st.selectbox("Split by", KEPT_SHARE_GROUPS, key=address.GROUPING, bind=address.BIND, width=200)
        ]
        source = st.segmented_control(
            "Counted from",
            sources,
            format_func=sources.get,
            default=first,
            key=f"source{'_by_hand' if first == 'weights' else ''}",
            required=True,
        )
    rule = f"Counted from the masks at prune ratio {ratio:g}."
    if source == "weights":
        table, rule = kept_share.list_tensors_by_weights(run)
        st.caption(rule)
    kept_share.draw_kept_share(table, run, group, rule)


runs = page_data.list_merges(page_data.stored_runs())
painting_state.note_painted_text()
first = recipes.preset_runs(FIRST_RUN_PRESETS, runs) or [run for run in runs if "saliency" in run.tables]
if picked := run_picker.pick_run(runs, next(iter(first), None)):
    draw_masks(*picked, runs)
    page_parts.draw_page_link(pages.COMPARE, "Compare with another run", "compare", run=picked[0].id)
