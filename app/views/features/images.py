"""Thumbnails with predictions, of the images circled on a map of the Features page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from app import text
from app.reading import data
from app.session import selection
from app.views.features.data import Model
from app.widgets import chart
from merging.files import tables
from viz.text import clean_text, plural

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

CIRCLED, MOST = "_circled", 30


class Shown(NamedTuple):
    """An image with its class, its predictions by label, and its data set where several are shown."""

    image: str
    truth: str
    answers: Sequence[tuple[str, str]]
    data_set: str = ""


def circle() -> None:
    """Callback of the lasso: store the circled images, and the run of their panel."""
    if picked := chart.circled("feature_map"):
        st.session_state[CIRCLED] = (picked[0]["run"].partition(":")[0], [one["image"] for one in picked])


def circled() -> tuple[str, list[str]]:
    """The run in whose panel images were circled, and those images."""
    run_id, images = st.session_state.get(CIRCLED, ("", []))
    return str(run_id), list(images)


def forget() -> None:
    """Clear the selection."""
    st.session_state.pop(CIRCLED, None)
    selection.choose(selection.IMAGE, None)


def thumbnails(models: Sequence[Model], table: pd.DataFrame, run_id: str, chosen: Sequence[str]) -> None:
    """The circled images with the right class, and the predictions before (pretrained) and after."""
    from merging.analysis.measurements.features import SPLIT

    if not chosen:
        st.caption(":material/gesture: Draw around some marks to see their images.")
        return
    after = next((model for model in models if model.run.id == run_id and not model.pretrained), models[-1])
    rows = table[table["run"].str.partition(":")[0] == after.run.id].drop_duplicates("image").set_index("image")
    rows = rows.loc[[image for image in chosen if image in rows.index]]
    rows = rows.loc[(rows["before"] == rows["predicted"]).sort_values(kind="stable").index]
    with st.container(horizontal=True, vertical_alignment="center", key="circled"):
        st.markdown(
            f"**{plural(len(rows), 'image')}** chosen. After: **{text.safe_text(after.label, 60)}**. "
            f"Right before: {int((rows['before'] == rows['truth']).sum())}, after: {int(rows['correct'].sum())}."
        )
        st.button("Clear", on_click=forget, type="tertiary", icon=":material/close:")
        st.download_button(
            "Selection (CSV)", lambda: tables.csv_bytes(rows.reset_index()), "features_selected.csv", "text/csv",
            on_click="ignore", type="tertiary", icon=":material/table:",
        )  # fmt: skip
    tiles = [
        Shown(str(image), row["truth"], (("before", row["before"]), ("after", row["predicted"])))
        for image, row in list(rows.iterrows())[:MOST]
    ]
    strip(tiles, SPLIT)
    if len(rows) > MOST:
        st.caption(f"Showing {MOST}, those whose prediction changes first; the file has all.")


def strip(images: Sequence[Shown], split: str) -> None:
    """Images of a split side by side, each with its class and predictions, and a button that chooses it."""
    chosen = selection.chosen(selection.IMAGE)
    with st.container(horizontal=True, gap="small", key="thumbnails"):
        for one in images:
            name = full_name(one.image, split)
            with st.container(width=132, gap="xsmall", border=name == chosen):
                tile(one, split)
                if name != chosen:
                    st.button(
                        "Choose", key=f"choose_{name}", type="tertiary", on_click=selection.choose,
                        args=(selection.IMAGE, name), help="Keep this image in view on all pages.",
                    )  # fmt: skip


def tile(one: Shown, split: str) -> None:
    """One image with its class and predictions."""
    where = f", {clean_text(one.data_set, 40)}" if one.data_set else ""
    st.image(_picture(one.image, split), width=72, alt=f"An image of {clean_text(one.truth, 60)}{where}")
    lines = [f"**{text.safe_text(one.truth, 24)}**"]
    lines += [f":gray[{text.safe_text(one.data_set, 24)}]"] if one.data_set else []
    lines += [f"{name}: {text.safe_text(answer, 60)}" for name, answer in one.answers]
    st.caption("  \n".join(lines))


def full_name(image: str, split: str) -> str:
    """An image as links name it, task:split:place, from its name in tables, task:place."""
    task, _, place = image.rpartition(":")
    return f"{task}:{split}:{place}"


def chosen_image(images: Iterable[str], split: str) -> str:
    """The chosen image as these tables name it; empty, and the page says so, if it is not among their images."""
    selection.show(selection.IMAGE)
    chosen = selection.chosen(selection.IMAGE)
    image = next((image for image in images if full_name(image, split) == chosen), "") if chosen else ""
    if chosen and not image:
        st.caption(f"The chosen image, {text.safe_text(chosen, 60)}, is not among the images shown here.")
    return image


@st.cache_data(max_entries=16, show_spinner=False)
def _pictures(digest: str, task: str, split: str) -> np.ndarray[Any, Any]:
    return data.benchmark().images(task, split)[0]


def _picture(image: str, split: str) -> np.ndarray[Any, Any]:
    """One image (h, w, 3)."""
    task, _, place = image.rpartition(":")
    picture: np.ndarray[Any, Any] = _pictures(data.benchmark().digest, task, split)[int(place)]
    return picture
