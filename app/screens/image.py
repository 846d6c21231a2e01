"""Image: one image through several models, depth by depth, and in words."""

from __future__ import annotations

import streamlit as st

from app.reading import data
from app.session import address
from app.views.image import choose, find, models
from app.views.image import page as image_page
from app.widgets import page


def main() -> None:
    """The image with what is said of it, the pickers, and the chosen view."""
    stored = data.stored()
    image = choose.shown()
    top = st.container(border=True)
    with st.container(gap="small"):
        image_page.pick_image(image)
        study = models.pick(image, stored)
    with st.expander("Find images", icon=":material/search:", expanded=address.QUESTION in st.query_params):
        find.view(study.runs)
    view = image_page.view(study)
    with top:
        left, right = st.columns([1, 3], vertical_alignment="center")
    with left:
        image_page.picture(image)
    image_page.draw(study, right, view)


page.heading("Image", "One image through several models: what each one says at which depth, and why.")
main()
