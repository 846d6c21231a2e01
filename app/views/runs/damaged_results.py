"""What the store cannot do or has lost: notices in the sidebar, and the list of damaged results."""

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

MOST = 50
STORAGE_VIEW = "storage and machine"
OTHER_VIEWS = {
    "measurement": "Its view offers to measure it again.",
    "point": "Its sweep computes it again when it is resumed.",
    "benchmark": "It is made again from its description, under data.",
    "draft": "It cannot be computed again.",
    "table of scores": "Give its file again, or let the program measure the model again.",
    "sweep": "Describe it again on Sweeps; its points are kept.",
}


def draw_notices() -> None:
    """In the sidebar: that nothing new can be kept, and how many damaged results were set aside."""
    store = page_data.store()
    if not is_writable(store.root):
        st.caption(
            ":material/lock: The folder of your runs cannot be written to. Stored results can be viewed, and nothing "
            "new can be kept."
        )
    if lost := [damage for damage in store.damaged.list_damage() if not damage.is_replaced]:
        results = plural(len(lost), "damaged result")
        st.caption(f":material/healing: {results} {'counts' if len(lost) == 1 else 'count'} as absent.")
        page_parts.draw_page_link(pages.MODELS, "See what is damaged", "healing", **{address.MODELS_VIEW: STORAGE_VIEW})


def draw_damaged() -> None:
    """Every damaged result, with buttons to compute it again and to delete it."""
    damages = page_data.store().damaged.list_damage()[:MOST]
    if not damages:
        return
    st.header("What is damaged?", anchor=False)
    st.caption("Files whose checksum is wrong are never shown. Their results are set aside and count as absent.")
    for number, damage in enumerate(damages):
        with st.container(border=True, key=f"damage_{number}", gap="xsmall"):
            again = _recompute_button(damage)
            title = f"**{page_text.safe_text(again.title, 60)}**: " if isinstance(again, Recipe) and again.title else ""
            st.markdown(title + page_text.safe_text(damage.sentence, 500))
            _draw_actions(damage, again, number)


def _draw_actions(damage: Damage, again: object, number: int) -> None:
    """Draw what can be done about one of them."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if damage.is_replaced:
            st.caption(":material/check_circle: It was computed again.")
        elif again is not None and permissions.is_allowed(
            VisitorAction.MERGE if isinstance(again, Recipe) else VisitorAction.MEASURE
        ):
            st.button(
                "Compute it again", key=f"damage_again_{number}", icon=":material/replay:", on_click=_start,
                args=(damage,),
            )  # fmt: skip
        elif damage.kind == RUN:
            st.caption("Its recipe is damaged; build it again on Merge.")
        else:
            st.caption(OTHER_VIEWS.get(damage.kind, ""))
        if damage.is_moved and listed_models.is_local():
            st.button(
                "Delete what is left of it", key=f"damage_delete_{number}", type="tertiary",
                on_click=_remove, args=(damage,),
            )  # fmt: skip


def _recompute_button(damage: Damage) -> object:
    """The recipe, or the measurement and its run; None if it cannot be computed from here."""
    from merging.study.analysis.measurement_store import damaged_subject
    from merging.study.runs.run_store import read_damaged_recipe

    if damage.kind == RUN:
        return read_damaged_recipe(damage)
    return damaged_subject(damage.place) if damage.kind == "measurement" else None


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _remove(damage: Damage) -> None:
    """Callback: delete what is left of something damaged."""
    page_data.store().damaged.remove(damage)


@click_errors.guard_callback
def _start(damage: Damage) -> None:
    """Callback: compute a damaged run or measurement again."""
    again = _recompute_button(damage)
    if isinstance(again, Recipe):
        page_data.job_queue().submit(again)
    elif isinstance(again, tuple):
        page_data.job_queue().measure(*again)
