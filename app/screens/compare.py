"""Compare: one run against another, from recipes to single images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading import recipes as recipes_reading
from app.reading.runs import run_names
from app.session import address, run_choice, view_state
from app.views.compare import difference_maps, image_agreement, score_changes
from app.views.compare import recipe_lines as compare_recipes
from app.views.compare import run_pair as compare_data
from app.views.compare.run_pair import RunPair
from app.widgets import page_parts, run_picker, selection_pickers
from app.widgets.panels import network_panel
from merging.study.runs.run import Run

VIEWS: dict[str, Callable[[RunPair], None]] = {  # name in the picker and in links -> function that draws it
    "scores": score_changes.draw_view,
    "charts": difference_maps.draw_view,
    "images": image_agreement.draw_view,
}
Suggestion = tuple[Run, list[compare_recipes.RecipeDifference]]  # a run, and its differences from A
MAX_SUGGESTIONS = 3
FIRST_RUN_PRESETS = ("task_arithmetic",)  # presets of the run that is A at first, if such a run is stored
REFERENCE_NOTE = "A is a merge; B is not: it is a reference model that merges are compared with."
UNKNOWN_METHODS_NOTE = "This version does not know a method of {}, so the recipes cannot be compared step by step."


def draw_run(run: Run, side: str) -> None:
    """A sentence about a run, and its recipe."""
    run_picker.draw_run(run)
    if run.kind == "merge":
        run_picker.draw_recipe_button(run, side)


def pick_run_b(a: Run, runs: Sequence[Run]) -> tuple[Run | None, bool]:
    """The picker of B; returns its run, and whether a link names a run that this machine lacks.

    If none is chosen, B is the nearest run; others that are near are offered.
    """
    by_id = {run.id: run for run in runs}
    chosen, missing = run_choice.resolve_run_b(list(by_id))
    suggestions: list[Suggestion] = []
    if missing:
        run_picker.draw_missing_runs([missing], run_choice.pick_run_b)
    elif not chosen:
        merges = [run for run in runs if run.kind == "merge"]
        nearest = compare_recipes.find_nearest_runs(a, merges)
        suggestions = nearest[:MAX_SUGGESTIONS]
        chosen = suggestions[0][0].id if suggestions else ""
        view_state.imply_parameter(address.RUN_B, chosen)
    st.session_state["other"] = chosen or None  # the picker follows the link
    st.selectbox(
        "Run B",
        list(by_id),
        format_func=run_names.label_runs(runs).__getitem__,
        key="other",
        on_change=run_choice.pick_run_b_from,
        args=("other",),
        placeholder="Choose a run to compare with A",
    )
    if chosen:
        draw_run(by_id[chosen], "b")
    if suggestions:
        draw_suggestions(suggestions)
    return by_id.get(chosen), bool(missing)


def draw_suggestions(suggestions: Sequence[Suggestion]) -> None:
    """Suggestions for B: the runs that differ least from A, the first of which is shown."""
    with st.popover("Runs nearest to A", icon=":material/compare:", type="tertiary"):
        st.markdown("B is the first of the runs on the same experts whose recipes are nearest to A's:")
        for run, lines in suggestions:
            with st.container(border=True):
                st.markdown(f"**{page_text.safe_text(run.name, 60)}**")
                st.caption(page_text.safe_text(compare_recipes.differences_in_words(lines), 240))
                st.button("Compare", key=f"beside_{run.id}", on_click=run_choice.pick_run_b, args=(run.id,))


def draw_tensor_picker(a: Run) -> None:
    """The picker of the tensor to compare, and links to other views of it."""
    tensors = list(page_data.run_table(a.id, "tensors")["tensor"])
    selection_pickers.pick_selected(
        address.TENSOR, tensors, "Tensor", placeholder="Choose a tensor to compare", width=380
    )
    selection_pickers.draw_view_links("Compare", address.TENSOR, run=a.id)


def list_comparable_runs(a: Run, runs: Sequence[Run], stored: Sequence[Run]) -> list[Run]:
    """The runs to compare A with: the merges, and the reference models evaluated on the same benchmark."""
    references = page_data.references(a.benchmark, stored)
    first_references = [references.pop(kind) for kind in ("pretrained", "multitask") if kind in references]
    return [*first_references, *runs, *references.values()]


def draw_recipe_lines(pair: RunPair) -> None:
    """The lines of the recipes that differ."""
    st.header("What was done differently?", anchor=False)
    if pair.is_reference:
        st.markdown(REFERENCE_NOTE)
        return
    lines = compare_recipes.list_differences(pair.a, pair.b)
    if unknown_runs := [run for run in pair.runs if not compare_recipes.has_known_methods(run)]:
        st.info(
            UNKNOWN_METHODS_NOTE.format(
                page_text.join_words([f"**{page_text.safe_text(run.name, 60)}**" for run in unknown_runs])
            )
        )
    elif not lines:
        st.markdown("Nothing. The recipes, their files and the benchmark are the same.")
        return
    if lines:
        rows = [[page_text.safe_text(cell, 400) for cell in line] for line in lines]
        run_heads = [f"{side}: {page_text.safe_text(name, 50)}" for side, name in zip("AB", pair.labels, strict=True)]
        heads = ["Step", "Setting", *run_heads]
        table = dict(zip(heads, zip(*rows, strict=True), strict=True))
        st.table(table, border="horizontal", hide_index=True, alt="Lines of the recipes that differ")


def main() -> None:
    """Both pickers, and the views of the pair."""
    stored = page_data.stored_runs()
    runs = page_data.list_merges(stored)
    first_run = next(iter(recipes_reading.preset_runs(FIRST_RUN_PRESETS, runs)), None)
    if not runs:
        run_picker.pick_run(runs)
        return
    with st.grid(2, min_column_width=340):
        with st.container():
            picked = run_picker.pick_run(runs, first_run, "Run A", lambda run: draw_run(run, "a"))
        with st.container():
            b, is_missing = (
                pick_run_b(picked[0], list_comparable_runs(picked[0], runs, stored)) if picked else (None, False)
            )
    if picked is None or is_missing:
        return
    a, _ = picked
    if b is None:
        st.info("Choose B above. No other run merges the same experts as A, so only a part can be compared.")
        draw_tensor_picker(a)
        return
    pair = compare_data.RunPair(a, b)
    if not pair.is_reference:  # a reference model cannot be A
        st.button("Swap A and B", icon=":material/swap_horiz:", on_click=run_choice.swap_runs, args=(a.id, b.id))
    if a.id == b.id:
        st.info("A and B are the same run, so every difference is zero.")
    for sentence in compare_recipes.incomparable_in_words(a, b):
        page_parts.draw_caution(sentence)
    draw_recipe_lines(pair)
    view = page_parts.pick_button("Compare", VIEWS, address.COMPARE_VIEW)
    if not pair.is_reference:
        network_panel.draw_panel(a, ("moved", "kept_share"), other_run=b)
    VIEWS[view](pair)


page_parts.draw_heading(
    "Compare", "Two runs side by side: what was done differently, where in the network it shows, and on which images."
)
main()
