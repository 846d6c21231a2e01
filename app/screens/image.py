"""Image: one image through several models, by depth, and in words."""

from __future__ import annotations

import streamlit as st

from app.reading import page_data
from app.session import address
from app.views.image import frame_of_page as image_page
from app.views.image import image_picker, image_search, model_pickers
from app.widgets import page_parts


def main() -> None:
    """The image with its description, the pickers, and the chosen view."""
    stored = page_data.stored_runs()
    image = image_picker.find_picked_image()
    top = st.container(border=True)
    with st.container(gap="small"):
        image_page.draw_image_pickers(image)
        study = model_pickers.pick_models(image, stored)  # the image in the chosen models
    with st.expander("Find images", icon=":material/search:", expanded=address.QUESTION in st.query_params):
        image_search.draw_view(study.runs)
    view = image_page.pick_view(study)
    with top:
        left, right = st.columns([1, 3], vertical_alignment="center")
    with left:
        image_page.draw_image(image)
    image_page.draw_page(study, right, view)


page_parts.draw_heading("Image", "One image through several models: the answer of each one at every depth, and why.")
main()
