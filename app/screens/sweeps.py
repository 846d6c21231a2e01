"""Sweeps: a recipe at many values, the cost of each out of domain, and the best value on the choosing half."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import page_data, sweeps
from app.session import polled_pickers, view_state
from app.views.sweeps import sweep_form, sweep_view, tuning_data, tuning_view
from app.widgets import page_parts
from merging.base.files.short_digest import match_prefix
from merging.study.sweeps import sweep_storage
from merging.study.tuning.tuning import list_tunings

NEW_SWEEP = "new"


def main() -> None:
    """The picker, and the form, a sweep or a tuning."""
    stored, store = page_data.stored_runs(), page_data.store()
    sweeps_by_id, tunings = sweep_storage.list_sweeps(store), list_tunings(store)
    labels = {sweep_id: sweeps.sweep_label(one) for sweep_id, one in sweeps_by_id.items()}
    labels |= {tuning_id: tuning_data.tuning_label(one) for tuning_id, one in tunings.items()}
    chosen, missing = view_state.resolve_sweep([NEW_SWEEP, *labels], next(iter(labels), NEW_SWEEP))
    if matches := match_prefix(missing, labels):
        st.markdown(f":material/link: Several sweeps begin with “{page_text.safe_text(missing)}”. Choose one:")
        for full in matches:
            label = page_text.safe_text(f"{labels[full]} · {full}", 120)
            st.button(label, key=f"several_{full}", type="tertiary", on_click=view_state.pick_sweep, args=(full,))
    elif missing:
        st.warning(
            f"This link asks for the sweep “{page_text.safe_text(missing, 20)}”, which this machine does not have. "
            "The sender can send the sweep as a file; the same file gives the same points.",
            icon=":material/link_off:",
        )
    if labels:
        key = polled_pickers.picker_key("sweep_picker", chosen)
        st.selectbox(
            "Sweep",
            [NEW_SWEEP, *labels],
            format_func=lambda sweep_id: "A new sweep" if sweep_id == NEW_SWEEP else labels[sweep_id],
            key=key,
            on_change=view_state.pick_sweep_from,
            args=(key,),
        )
    if chosen == NEW_SWEEP:
        st.header("A new sweep", anchor=False)
        sweep_form.draw_form(stored)
        page_parts.draw_link()
    elif chosen in tunings:
        tuning_view.draw_tuning(tunings[chosen], stored)
    else:
        sweep_view.draw_sweep(sweeps_by_id[chosen], stored)


page_parts.draw_heading(
    "Sweeps", "A recipe at many values: what each gains in domain, what it costs out of domain, and for which tasks."
)
main()
