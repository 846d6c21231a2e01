"""The images that a page showed last as thumbnails; the page Image steps through them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.session import selection

_IMAGES_KEY = "_found_images"
STEP_BUTTONS = (("previous", "Previous of these", "arrow_back", -1), ("next", "Next of these", "arrow_forward", 1))


def remember_images(title: str, images: Sequence[str]) -> None:
    """Remember images (task:split:index) in their order on the page; ``title`` describes them."""
    st.session_state[_IMAGES_KEY] = (title, list(images))


def remembered_images() -> tuple[str, list[str]]:
    """The title of the images and the images; both are empty until images are shown."""
    title, images = st.session_state.get(_IMAGES_KEY, ("", []))
    return str(title), list(images)


def draw_neighbor_buttons(image: str) -> None:
    """Draw the position of ``image`` among the remembered images, with buttons that open its neighbors.

    Draws nothing if ``image`` is not among them.
    """
    title, images = remembered_images()
    if image not in images or len(images) < 2:
        return
    from merging.study.measurements.find_images import next_image

    index = images.index(image)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="found_images"):
        st.caption(f"{index + 1} of {len(images)}: {page_text.safe_text(title, 80)}", width="content")
        for key, label, icon, offset in STEP_BUTTONS:
            neighbor = next_image(images, image, offset)
            st.button(
                label, key=f"found_{key}", icon=f":material/{icon}:", type="tertiary",
                on_click=selection.choose_value, args=(selection.IMAGE, neighbor),
            )  # fmt: skip
