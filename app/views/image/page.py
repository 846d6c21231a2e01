"""The Image page's frame: the picture, what is said of it, the view, and looking for answers until all are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import streamlit as st

from app import text
from app.reading import names, previews
from app.session import address
from app.session.clicks import fragment
from app.views.image import answer, choose, data, drift, look, neighbors, own, restore
from app.views.image.data import Shown, Study, Tables
from app.views.image.data_set_view import data_set_view
from app.widgets import found_images
from app.widgets.jobs import own_machine
from merging.base import modes
from merging.base.modes import Act, Mode
from merging.study.previews.bench import TableName
from viz.text import clean_text

ANSWER, LOOK, DRIFT, RESTORE, OCCLUDE, NEAR, DATA_SETS = (
    "answer by depth",
    "where it looks",
    "drift by patch",
    "restore tokens",
    "occlude patches",
    "neighbors",
    "whole data sets",
)
POLL = 0.4  # seconds between two readings while tables are under way
WAITING = "Reading the image. The first answer of a run that has to be merged anew takes a few seconds."

PLAIN: Mapping[str, tuple[Callable[[Study], list[TableName]], Callable[[Study, Tables], None]]] = {
    ANSWER: (answer.wanted, answer.draw),
    DRIFT: (drift.wanted, drift.draw),
    RESTORE: (restore.wanted, restore.draw),
    OCCLUDE: (restore.wanted_occluded, restore.draw_occluded),
    NEAR: (neighbors.wanted, neighbors.draw),
}


class View(NamedTuple):
    """A view of the page: the tables that it needs, and what draws it from those that are there."""

    wanted: list[TableName]
    draw: Callable[[Tables], None]


def view(study: Study) -> View:
    """The picker of the view, and the chosen one with its own pickers."""
    chosen = st.segmented_control(
        "View", (ANSWER, LOOK, *list(PLAIN)[1:], DATA_SETS), default=ANSWER, key=address.IMAGE_VIEW, bind=address.BIND,
        required=True,
    )  # fmt: skip
    if chosen == LOOK:
        part = look.pick()
        return View(look.wanted(study, part), lambda tables: look.draw(study, tables, part))
    if chosen == DATA_SETS:
        return View([], lambda tables: data_set_view(study.runs))
    wanted, drawn = PLAIN[chosen]
    return View(wanted(study), lambda tables: drawn(study, tables))


def names_of(study: Study, wanted: list[TableName]) -> list[TableName]:
    """All tables of the page: the sentences without what restoring says, the view's, and the whole sentences."""
    said = study.subjects or study.models[:1]
    first, last = ([TableName(table, model.key, model.reference) for model in said] for table in ("says", "sentence"))
    return data.ordered([*first, *wanted, *last])


def picture(image: Shown) -> None:
    """The image as the models see it, beside the original of a picture of the user's, and what it shows."""
    given = own.kept()
    alt = f"An image of {clean_text(image.truth, 60)}" if image.truth else "Your picture as the models see it"
    with st.container(horizontal=True, gap="small"):
        st.image(image.picture, width=120, alt=alt)
        if given is not None:
            st.image(given.original, width=120, alt="Your picture as it was given")
    if given is not None:
        st.caption("Left as the models see it, right as it was given. Nothing says what it shows.")
        st.button("Close your picture", on_click=own.leave, type="tertiary", icon=":material/close:")
        return
    task = names.expert(image.name.partition(":")[0])
    st.caption(f"**{text.safe_text(image.truth, 60)}**, {text.safe_text(task, 60)}")


def said(tables: Tables) -> None:
    """What is said of the image in each model, and what cannot be made."""
    for words in tables.sentences().values():
        st.markdown(text.safe_text(words, 600))
    for problem, title in tables.problems.items():
        st.caption(f":material/info: {text.safe_text(title, 60)}: {text.safe_text(problem, 400)}")


def draw(study: Study, head: st.delta_generator.DeltaGenerator, chosen: View) -> None:
    """The sentences in ``head``, the view, and a part that looks for further tables."""
    asked = names_of(study, chosen.wanted)
    tables, running, error = data.read(study, asked)
    with head:
        said(tables)
        if running:
            st.caption(f":material/hourglass_top: {WAITING}")
        if own_machine.refused(Act.PREVIEW):
            pass  # what was computed before is drawn all the same
        elif error:
            st.error(text.safe_text(error, 600), icon=":material/error:")
            st.button("Try again", on_click=previews.ask, args=(data.request(study, asked), data.BENCH))
        if running:
            fragment(_wait, run_every=POLL)(study, asked, len(tables.known) + len(tables.problems))
    chosen.draw(tables)


def _wait(study: Study, asked: list[TableName], shown: int) -> None:
    """Draw the page again once there are more tables than it shows, or no more are under way."""
    tables, running, _ = data.read(study, asked)
    if not running or len(tables.known) + len(tables.problems) > shown:
        st.rerun()


def pick_image(image: Shown) -> None:
    """The pickers of an image, and a place to give a picture of the user's."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if own.kept() is None:
            choose.picker(image)
        if modes.mode() == Mode.FULL:
            with st.popover("Your picture", icon=":material/upload:"):
                own.upload()
    if own.kept() is None:
        choose.about(image)
        found_images.walk(image.name)
