"""Sidebar notices of a read-only store and of damaged results, and the list of damaged results.

A result is damaged if its checksum is wrong; it is moved out of the store and counts as absent.
"""

from __future__ import annotations

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import listed_models, page_data
from app.session import address, click_errors, pages
from app.widgets import page_parts
from merging.base.files.disk import is_writable
from merging.base.modes import VisitorAction
from merging.recipes.recipe import Recipe
from merging.tasks.quarantine import RUN, Damage
from viz.figure_text import plural

MAX_RESULTS = 50  # damaged results in the list
STORAGE_VIEW = "storage and machine"
RECOVERY_HINTS = {
    "measurement": "Measure it again in its view.",
    "point": "Its sweep computes it again when it is resumed.",
    "benchmark": "Make it again from its description, under data.",
    "draft": "It cannot be computed again.",
    "table of scores": "Upload its file again, or let the program measure the model again.",
    "sweep": "Describe it again on Sweeps; its points are stored.",
}


def draw_notices() -> None:
    """Draw notices in the sidebar on a read-only store and on the number of damaged results."""
    store = page_data.store()
    if not is_writable(store.root):
        st.caption(
            ":material/lock: The folder of your runs cannot be written to. Stored results can be viewed, and nothing "
            "new can be stored."
        )
    if unreplaced := [damage for damage in store.damaged.list_damage() if not damage.is_replaced]:
        results = plural(len(unreplaced), "damaged result")
        st.caption(f":material/healing: {results} {'counts' if len(unreplaced) == 1 else 'count'} as absent.")
        page_parts.draw_page_link(pages.MODELS, "See what is damaged", "healing", **{address.MODELS_VIEW: STORAGE_VIEW})


def draw_damaged_results() -> None:
    """Draw every damaged result, with buttons to compute it again and to delete it."""
    damages = page_data.store().damaged.list_damage()[:MAX_RESULTS]
    if not damages:
        return
    st.header("What is damaged?", anchor=False)
    st.caption(
        "Files whose checksum is wrong are never shown. Their results are moved out of the store and count as absent."
    )
    for number, damage in enumerate(damages):
        with st.container(border=True, key=f"damage_{number}", gap="xsmall"):
            source = _find_recompute_source(damage)
            title = source.title if isinstance(source, Recipe) else ""
            prefix = f"**{page_text.safe_text(title, 60)}**: " if title else ""
            st.markdown(prefix + page_text.safe_text(damage.sentence, 500))
            _draw_actions(damage, source, number)


def _draw_actions(damage: Damage, recompute_source: object, number: int) -> None:
    """Draw the actions on one damaged result."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if damage.is_replaced:
            st.caption(":material/check_circle: It was computed again.")
        elif recompute_source is not None and permissions.is_allowed(
            VisitorAction.MERGE if isinstance(recompute_source, Recipe) else VisitorAction.MEASURE
        ):
            st.button(
                "Compute it again", key=f"damage_again_{number}", icon=":material/replay:", on_click=_recompute,
                args=(damage,),
            )  # fmt: skip
        elif damage.kind == RUN:
            st.caption("Its recipe is damaged; build it again on Merge.")
        else:
            st.caption(RECOVERY_HINTS.get(damage.kind, ""))
        if damage.is_moved and listed_models.is_local():
            st.button(
                "Delete its remaining files", key=f"damage_delete_{number}", type="tertiary",
                on_click=_delete_files, args=(damage,),
            )  # fmt: skip


def _find_recompute_source(damage: Damage) -> object:
    """The recipe of a run, or a measurement with its run; None if a page cannot compute the result again."""
    from merging.study.analysis.measurement_store import read_damaged_subject
    from merging.study.runs.run_store import read_damaged_recipe

    if damage.kind == RUN:
        return read_damaged_recipe(damage)
    return read_damaged_subject(damage.path) if damage.kind == "measurement" else None


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete_files(damage: Damage) -> None:
    """Callback: delete the remaining files of a damaged result."""
    page_data.store().damaged.remove(damage)


@click_errors.guard_callback
def _recompute(damage: Damage) -> None:
    """Callback: compute a damaged run or measurement again."""
    source = _find_recompute_source(damage)
    if isinstance(source, Recipe):
        page_data.job_queue().submit(source)
    elif isinstance(source, tuple):
        page_data.job_queue().measure(*source)
