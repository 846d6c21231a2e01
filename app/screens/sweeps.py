"""Sweeps: a recipe at many values, what each costs out of domain, and the best value on the choosing half."""

from __future__ import annotations

import streamlit as st

from app import text
from app.reading import data, sweeps
from app.session import pickers, state
from app.views.sweeps import form, view
from app.widgets import page
from merging.base.files.short_digest import beginning_with
from merging.study.sweeps import storage

NEW = "new"


def main() -> None:
    """The picker, and the form or a sweep."""
    stored, sweeps_by_id = data.stored(), storage.listed(data.store())
    chosen, missing = state.picked_sweep([NEW, *sweeps_by_id], next(iter(sweeps_by_id), NEW))
    if several := beginning_with(missing, sweeps_by_id):
        st.markdown(f":material/link: Several sweeps begin with “{text.safe_text(missing)}”. Choose one:")
        for full in several:
            label = text.safe_text(f"{sweeps.title(sweeps_by_id[full])} · {full}", 120)
            st.button(label, key=f"several_{full}", type="tertiary", on_click=state.pick_sweep, args=(full,))
    elif missing:
        st.warning(
            f"This link asks for the sweep “{text.safe_text(missing, 20)}”, which this machine does not have. "
            "The sender can send the sweep as a file; the same file gives the same points.",
            icon=":material/link_off:",
        )
    if sweeps_by_id:
        key = pickers.key("sweep_picker", chosen)
        st.selectbox(
            "Sweep",
            [NEW, *sweeps_by_id],
            format_func=lambda sweep_id: "A new sweep" if sweep_id == NEW else sweeps.label(sweeps_by_id[sweep_id]),
            key=key,
            on_change=state.pick_sweep_from,
            args=(key,),
        )
    if chosen == NEW:
        st.header("A new sweep", anchor=False)
        form.form(stored)
        page.link()
    else:
        view.view(sweeps_by_id[chosen], stored)


page.heading(
    "Sweeps", "A recipe at many values: what each gains in domain, what it costs out of domain, and for which tasks."
)
main()
