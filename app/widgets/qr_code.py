"""An address as a QR code, made without any service."""

from __future__ import annotations

import streamlit as st

QR = 4  # px of a module


@st.cache_data(max_entries=50, show_spinner=False)
def qr_svg(text: str) -> str:
    """A QR code as SVG, dark on light on every ground, because cameras read no other."""
    import segno

    code = segno.make(text, error="l", micro=False)
    return str(code.svg_inline(scale=QR, border=4, dark="#000000", light="#ffffff"))
