"""Compare: one run against another, from recipes to single images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app import text
from app.reading import data
from app.reading import recipes as recipes_reading
from app.session import address, run_choice
from app.views.compare import charts, images, scores
from app.views.compare import data as compare_data
from app.views.compare import recipes as compare_recipes
from app.views.compare.data import Pair
from app.widgets import page, run_picker, selected
from merging.study.runs.run import Run

VIEWS: dict[str, Callable[[Pair], None]] = {  # name in the picker and in links -> what draws it
    "scores": scores.view,
    "charts": charts.view,
    "images": images.view,
}
SUGGESTED = 3
FIRST = ("task_arithmetic",)  # the preset whose run is A at first, if there is such a run
REFERENCE = "A is a merge; B is not: it is a reference model that merges are compared with."
UNKNOWN = "This version does not know a method of {}, so the recipes cannot be compared step by step."


def about(run: Run, side: str) -> None:
    """A sentence about a run, and its recipe."""
    run_picker.about(run)
    if run.kind == "merge":
        run_picker.recipe_buttons(run, side)


def pick_other(runs: Sequence[Run]) -> tuple[Run | None, bool]:
    """The picker of B; returns its run, and whether a link names a run that this machine lacks."""
    by_id = {run.id: run for run in runs}
    chosen, missing = run_choice.picked_other(list(by_id))
    if missing:
        run_picker.missing_runs([missing], run_choice.pick_other)
    st.session_state["other"] = chosen or None  # the picker follows the link
    st.selectbox(
        "Run B",
        list(by_id),
        format_func=lambda run_id: text.label(by_id[run_id]),
        key="other",
        on_change=run_choice.pick_other_from,
        args=("other",),
        placeholder="Choose a run to compare with A",
    )
    if chosen:
        about(by_id[chosen], "b")
    return by_id.get(chosen), bool(missing)


def suggest(a: Run, runs: Sequence[Run]) -> None:
    """Suggestions for B: the runs that differ least from A."""
    suggestions = compare_recipes.nearest(a, runs)[:SUGGESTED]
    if not suggestions:
        st.info("Choose B above. No other run merges the same experts as A, so only a part can be compared.")
        return
    st.markdown("Choose B above, or one of the runs on the same experts whose recipes are nearest to A's:")
    with st.grid(SUGGESTED, min_column_width=260):
        for run, lines in suggestions:
            with st.container(border=True, height="stretch"):
                st.markdown(f"**{text.safe_text(run.name, 60)}**")
                st.caption(text.safe_text(compare_recipes.sentence(lines), 240))
                st.button("Compare", key=f"beside_{run.id}", on_click=run_choice.pick_other, args=(run.id,))


def one_tensor(a: Run) -> None:
    """The chosen tensor, which the comparison then shows, with the other views of it."""
    tensors = list(data.table(a.id, "tensors")["tensor"])
    selected.pick(address.TENSOR, tensors, "Tensor", placeholder="Choose a tensor to compare", width=380)
    selected.doors("Compare", address.TENSOR, run=a.id)


def others(a: Run, runs: Sequence[Run], stored: Sequence[Run]) -> list[Run]:
    """What A can be compared with: the merges, and the reference models evaluated on the same benchmark."""
    references = data.references(a.benchmark, stored)
    first = [references.pop(kind) for kind in ("pretrained", "multitask") if kind in references]
    return [*first, *runs, *references.values()]


def recipes(of: Pair) -> None:
    """The lines of the recipes that differ."""
    st.header("What was done differently?", anchor=False)
    if of.reference:
        st.markdown(REFERENCE)
        return
    lines = compare_recipes.lines(of.a, of.b)
    if unknown := [run for run in of.runs if not compare_recipes.is_known(run)]:
        st.info(UNKNOWN.format(text.listed([f"**{text.safe_text(run.name, 60)}**" for run in unknown])))
    elif not lines:
        st.markdown("Nothing: the recipes, their files and the benchmark are the same.")
        return
    if lines:
        rows = [[text.safe_text(cell, 400) for cell in line] for line in lines]
        named = [f"{side}: {text.safe_text(name, 50)}" for side, name in zip("AB", of.labels, strict=True)]
        heads = ["Step", "Setting", *named]
        table = dict(zip(heads, zip(*rows, strict=True), strict=True))
        st.table(table, border="horizontal", hide_index=True, alt="Lines of the recipes that differ")


def main() -> None:
    """Both pickers, and the views of the pair."""
    stored = data.stored()
    runs = data.runs(stored)
    first = next(iter(recipes_reading.of_presets(FIRST, runs)), None)
    if not runs:
        run_picker.pick_run(runs)
        return
    with st.grid(2, min_column_width=340):
        with st.container():
            picked = run_picker.pick_run(runs, first, "Run A", lambda run: about(run, "a"))
        with st.container():
            b, missing = pick_other(others(picked[0], runs, stored)) if picked else (None, False)
    if picked is None or missing:
        return
    a, _ = picked
    if b is None:
        suggest(a, runs)
        one_tensor(a)
        return
    of = compare_data.pair(a, b)
    if not of.reference:  # a reference model cannot be A
        st.button("Swap A and B", icon=":material/swap_horiz:", on_click=run_choice.swap_runs, args=(a.id, b.id))
    if a.id == b.id:
        st.info("A and B are the same run, so every difference is zero.")
    for sentence in compare_recipes.limits(a, b):
        page.caution(sentence)
    recipes(of)
    view = st.segmented_control(
        "Compare", VIEWS, default="scores", key=address.COMPARE_VIEW, bind=address.BIND, required=True
    )
    VIEWS[view](of)


page.heading(
    "Compare", "Two runs side by side: what was done differently, where in the network it shows, and on which images."
)
main()
