"""What the store cannot do or has lost: notices in the sidebar, and the list of damaged results."""

from __future__ import annotations

import streamlit as st

from app import permission, text
from app.permission import asks
from app.reading import data, models
from app.session import address, clicks, pages
from app.widgets import page
from merging.base.files.disk import is_writable
from merging.base.modes import Act
from merging.recipes.recipe import Recipe
from merging.tasks.quarantine import RUN, Damage
from viz.text import plural

MOST = 50
SHELF = "storage and machine"
ELSEWHERE = {
    "measurement": "Its view offers to measure it again.",
    "point": "Its sweep computes it again when it is resumed.",
    "benchmark": "It is made again from its description, under data.",
    "draft": "It cannot be computed again.",
    "table of scores": "Give its file again, or let the program measure the model again.",
    "sweep": "Describe it again on Sweeps; its points are kept.",
}


def notices() -> None:
    """In the sidebar: that nothing new can be kept, and how many damaged results were set aside."""
    store = data.store()
    if not is_writable(store.root):
        st.caption(
            ":material/lock: The folder of your runs cannot be written to. Stored results can be viewed, and nothing "
            "new can be kept."
        )
    if lost := [damage for damage in store.damaged.listed() if not damage.replaced]:
        results = plural(len(lost), "damaged result")
        st.caption(f":material/healing: {results} {'counts' if len(lost) == 1 else 'count'} as absent.")
        page.open_page(pages.MODELS, "See what is damaged", "healing", **{address.MODELS_VIEW: SHELF})


def show() -> None:
    """Every damaged result, with buttons to compute it again and to delete it."""
    damages = data.store().damaged.listed()[:MOST]
    if not damages:
        return
    st.header("What is damaged?", anchor=False)
    st.caption("Files whose checksum is wrong are never shown. Their results are set aside and count as absent.")
    for number, damage in enumerate(damages):
        with st.container(border=True, key=f"damage_{number}", gap="xsmall"):
            again = _again(damage)
            title = f"**{text.safe_text(again.title, 60)}**: " if isinstance(again, Recipe) and again.title else ""
            st.markdown(title + text.safe_text(damage.sentence, 500))
            _actions(damage, again, number)


def _actions(damage: Damage, again: object, number: int) -> None:
    """Draw what can be done about one of them."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if damage.replaced:
            st.caption(":material/check_circle: It was computed again.")
        elif again is not None and permission.allows(Act.MERGE if isinstance(again, Recipe) else Act.MEASURE):
            st.button(
                "Compute it again", key=f"damage_again_{number}", icon=":material/replay:", on_click=_start,
                args=(damage,),
            )  # fmt: skip
        elif damage.kind == RUN:
            st.caption("Its recipe is damaged; build it again on Merge.")
        else:
            st.caption(ELSEWHERE.get(damage.kind, ""))
        if damage.aside and models.local():
            st.button(
                "Delete what is left of it", key=f"damage_delete_{number}", type="tertiary",
                on_click=_remove, args=(damage,),
            )  # fmt: skip


def _again(damage: Damage) -> object:
    """The recipe, or the measurement and its run; None if it cannot be computed from here."""
    from merging.study.analysis.stored import subject_of
    from merging.study.runs.store import recipe_of

    if damage.kind == RUN:
        return recipe_of(damage)
    return subject_of(damage.place) if damage.kind == "measurement" else None


@clicks.guarded
@asks(Act.DELETE)
def _remove(damage: Damage) -> None:
    """Callback: delete what is left of something damaged."""
    data.store().damaged.remove(damage)


@clicks.guarded
def _start(damage: Damage) -> None:
    """Callback: compute a damaged run or measurement again."""
    again = _again(damage)
    if isinstance(again, Recipe):
        data.runner().submit(again)
    elif isinstance(again, tuple):
        data.runner().measure(*again)
