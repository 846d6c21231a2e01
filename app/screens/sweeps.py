"""Sweeps: a recipe at many values, the cost of each out of domain, and the best value on the choosing half."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import page_data, sweeps
from app.session import polled_pickers, view_state
from app.views.sweeps import sweep_form, sweep_view
from app.widgets import page_parts
from merging.base.files.short_digest import match_prefix
from merging.study.sweeps import sweep_storage

NEW_SWEEP = "new"


def main() -> None:
    """The picker, and the form or a sweep."""
    stored, sweeps_by_id = page_data.stored_runs(), sweep_storage.list_sweeps(page_data.store())
    chosen, missing = view_state.resolve_sweep([NEW_SWEEP, *sweeps_by_id], next(iter(sweeps_by_id), NEW_SWEEP))
    if matches := match_prefix(missing, sweeps_by_id):
        st.markdown(f":material/link: Several sweeps begin with “{page_text.safe_text(missing)}”. Choose one:")
        for full in matches:
            label = page_text.safe_text(f"{sweeps.sweep_title(sweeps_by_id[full])} · {full}", 120)
            st.button(label, key=f"several_{full}", type="tertiary", on_click=view_state.pick_sweep, args=(full,))
    elif missing:
        st.warning(
            f"This link asks for the sweep “{page_text.safe_text(missing, 20)}”, which this machine does not have. "
            "The sender can send the sweep as a file; the same file gives the same points.",
            icon=":material/link_off:",
        )
    if sweeps_by_id:
        key = polled_pickers.picker_key("sweep_picker", chosen)
        st.selectbox(
            "Sweep",
            [NEW_SWEEP, *sweeps_by_id],
            format_func=lambda sweep_id: (
                "A new sweep" if sweep_id == NEW_SWEEP else sweeps.sweep_label(sweeps_by_id[sweep_id])
            ),
            key=key,
            on_change=view_state.pick_sweep_from,
            args=(key,),
        )
    if chosen == NEW_SWEEP:
        st.header("A new sweep", anchor=False)
        sweep_form.draw_form(stored)
        page_parts.draw_link()
    else:
        sweep_view.draw_sweep(sweeps_by_id[chosen], stored)


page_parts.draw_heading(
    "Sweeps", "A recipe at many values: what each gains in domain, what it costs out of domain, and for which tasks."
)
main()
