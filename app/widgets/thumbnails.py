"""Thumbnails of a benchmark's images, each with its class, predictions, and a link that opens it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from app import page_text
from app.reading import benchmark_images
from app.session import selection
from app.widgets import found_images, image_link
from merging.study.runs.run import Run
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import numpy as np


class Thumbnail(NamedTuple):
    """An image (task:index) with its class, pairs of model and prediction, and its data set if several are shown."""

    image: str
    truth: str
    answers: Sequence[tuple[str, str]]
    data_set: str = ""


def draw_strip(
    images: Sequence[Thumbnail], split: str, runs: Sequence[Run], title: str, key: str = "thumbnails"
) -> None:
    """Images of a split side by side, each with its class and predictions, a button that chooses it, and a link.

    The links contain the current ``runs``; ``title`` describes the images on the page that a link opens. ``key``
    distinguishes several strips on a page.
    """
    chosen = selection.chosen_value(selection.IMAGE)
    found_images.remember_images(title, [full_name(thumbnail.image, split) for thumbnail in images])
    with st.container(horizontal=True, gap="small", key=key):
        for thumbnail in images:
            name = full_name(thumbnail.image, split)
            with st.container(width=132, gap="xsmall", border=name == chosen):
                draw_tile(thumbnail, split, runs)
                if name != chosen:
                    st.button(
                        "Choose", key=f"choose_{'' if key == 'thumbnails' else key}{name}", type="tertiary",
                        on_click=selection.choose_value, args=(selection.IMAGE, name),
                        help="Keep this image in view on all pages.",
                    )  # fmt: skip


def draw_tile(thumbnail: Thumbnail, split: str, runs: Sequence[Run]) -> None:
    """One image with its class and predictions, and a link that opens it."""
    data_set = f", {clean_text(thumbnail.data_set, 40)}" if thumbnail.data_set else ""
    st.image(
        _read_picture(thumbnail.image, split), width=72, alt=f"An image of {clean_text(thumbnail.truth, 60)}{data_set}"
    )
    sign = ""
    if thumbnail.truth == selection.chosen_value(selection.CLASS):
        sign = "▸ "
        selection.note_shown(selection.CLASS)
    lines = [f"**{sign}{page_text.safe_text(thumbnail.truth, 24)}**"]
    lines += [f":gray[{page_text.safe_text(thumbnail.data_set, 24)}]"] if thumbnail.data_set else []
    lines += [f"{name}: {page_text.safe_text(answer, 60)}" for name, answer in thumbnail.answers]
    st.caption("  \n".join(lines))
    image_link.draw_image_link(full_name(thumbnail.image, split), runs)


def full_name(image: str, split: str) -> str:
    """An image's name in links, task:split:index, from its name in tables, task:index."""
    task, _, index = image.rpartition(":")
    return f"{task}:{split}:{index}"


def chosen_image(images: Iterable[str], split: str) -> str:
    """The chosen image by its name in tables; empty, with a caption, if it is not among ``images``."""
    selection.note_shown(selection.IMAGE)
    chosen = selection.chosen_value(selection.IMAGE)
    image = next((image for image in images if full_name(image, split) == chosen), "") if chosen else ""
    if chosen and not image:
        st.caption(f"The chosen image, {page_text.safe_text(chosen, 60)}, is not among the images on this page.")
    return image


def _read_picture(image: str, split: str) -> np.ndarray[Any, Any]:
    """One image (h, w, 3)."""
    task, _, index = image.rpartition(":")
    picture: np.ndarray[Any, Any] = benchmark_images.split_images(task, split)[int(index)]
    return picture
