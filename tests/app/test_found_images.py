"""Walking through the images that were shown last as thumbnails."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def page() -> None:
    import streamlit as st

    from app.session import selection
    from app.widgets import found_images

    if "set" not in st.session_state:
        st.session_state["set"] = True
        found_images.remember_images("three of them", ["a:reporting:1", "b:reporting:0", "a:reporting:7"])
        selection.choose_value(selection.IMAGE, "b:reporting:0")
    found_images.draw_neighbor_buttons(selection.chosen_value(selection.IMAGE))


def test_next_and_previous_go_around() -> None:
    at = AppTest.from_function(page, default_timeout=60).run()
    assert at.caption[0].value == "2 of 3: three of them"
    at.button(key="found_next").click().run()
    assert at.caption[0].value.startswith("3 of 3") and at.query_params["image"] == "a:reporting:7"
    at.button(key="found_next").click().run()
    assert at.caption[0].value.startswith("1 of 3")
    at.button(key="found_previous").click().run()
    assert at.query_params["image"] == "a:reporting:7" and not at.exception
