"""An address as a QR code, drawn here: no service is asked."""

from __future__ import annotations

import streamlit as st

QR = 4  # px of a module


@st.cache_data(max_entries=50, show_spinner=False)
def qr_svg(text: str) -> str:
    """A QR code as SVG, dark on light whatever the page's ground: cameras read no other."""
    import segno

    code = segno.make(text, error="l", micro=False)
    return str(code.svg_inline(scale=QR, border=4, dark="#000000", light="#ffffff"))
