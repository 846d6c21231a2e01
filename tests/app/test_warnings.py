"""A warning is an error every time: in the script of a page, which runs in a thread, and in processes of tests."""

from __future__ import annotations

import subprocess
import sys

from streamlit.testing.v1 import AppTest


def test_a_warning_in_a_page_is_an_error_on_it() -> None:
    def page() -> None:
        import warnings

        import streamlit as st

        warnings.warn("this will be an error", DeprecationWarning, stacklevel=1)
        st.text("drawn to the end")

    at = AppTest.from_function(page).run()
    assert len(at.exception) == 1 and not at.text


def test_a_warning_in_a_process_of_a_test_ends_it() -> None:
    code = "import warnings; warnings.warn('this will be an error', DeprecationWarning)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1 and "this will be an error" in ended.stderr
