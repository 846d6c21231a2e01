"""An address as a QR code, made without any service."""

from __future__ import annotations

import streamlit as st

MODULE_PX = 4  # size of a module, one of the code's squares


@st.cache_data(max_entries=50, show_spinner=False)
def qr_svg(text: str) -> str:
    """A QR code as SVG, dark on light on every ground, because cameras cannot read other colors."""
    import segno

    code = segno.make(text, error="l", micro=False)
    return str(code.svg_inline(scale=MODULE_PX, border=4, dark="#000000", light="#ffffff"))
