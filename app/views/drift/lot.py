"""LOT on the Drift page: its closed form between two extreme cases, and how many exemplars methods need."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.reading import measurements
from app.session import state
from app.session.clicks import fragment
from app.widgets import chart, measure_button
from merging.runs.run import Run
from viz.text import clean_text, plural

NOT_MEASURED = (
    "How accuracy depends on the number of exemplars has not been measured on this benchmark. This merges and "
    "evaluates every method that needs exemplars with 1 to 64 of them, in three different draws. It takes many "
    "minutes, in the background, and you can cancel it."
)


@fragment
def cases() -> None:
    """Two tasks on one layer, from orthogonal to shared feature spaces; exact, computed at once."""
    from merging.analysis.lot_extreme_cases import RANK, extreme_case

    st.markdown(
        "LOT solves each layer in closed form. Here are two tasks whose inputs span a few directions. In directions "
        "that only one task's inputs excite, LOT follows that task's vector and **no drift remains**. In shared "
        "directions it takes an **average weighted by the energy** of the inputs, and drift remains unless the two "
        "task vectors agree. Move the first slider from one extreme of the paper's analysis (section 5.1) to the other."
    )
    with st.grid(3, min_column_width=220):
        shared: int = st.slider("Directions that both inputs share", 0, RANK, 2, key=state.OVERLAP, bind=state.BIND)
        energy: float = st.slider(
            "Energy of task B's inputs against task A's", 0.1, 5.0, 1.0, 0.1, key=state.ENERGY, bind=state.BIND
        )
        agreement: float = st.slider(
            "Cosine of the two task vectors", -1.0, 1.0, 0.0, 0.05, key=state.AGREEMENT, bind=state.BIND
        )
    case = extreme_case(shared, energy, agreement)
    ends = {
        0: "The feature spaces are orthogonal: LOT drifts from neither expert.",
        RANK: "The feature spaces are the same: LOT is a weighted average of the task vectors.",
    }
    between = f"The tasks share {shared} of {RANK} directions: LOT does both at once."
    caption = (
        f"{ends.get(shared, between)} Computed just now on this machine's CPU, from synthetic numbers, seed 0. "
        "The sum is Task Arithmetic with scaling 1, the mean is weight averaging."
    )
    described = (
        f"{caption} Energy of task B's inputs against task A's {energy:g}, cosine of the task vectors {agreement:g}."
    )
    with st.grid(2, min_column_width=380):
        with st.container():
            chart.chart("drift_case_weights", case.weights, name="lot_case_weights", description=described, of=())
        with st.container():
            chart.chart("drift_case_objective", case.drift, name="lot_case_drift", description=described, of=())
    st.caption(caption)


def exemplars(stored: Sequence[Run]) -> None:
    """Accuracy against the number of exemplars, as a chart and a table."""
    measurement = measurements.find(measurements.EXEMPLARS)
    if measurement is None:
        measure_button.missing_benchmark(measurements.EXEMPLARS, NOT_MEASURED)
        return
    accuracy, rank = measurements.exemplars(measurement)
    lines = measurements.references(stored)
    draws, tasks = plural(measurement.notes["seeds"], "draw"), plural(int(accuracy["tasks"].iloc[0]), "task")
    caption = (
        f"Lines are means over {draws} of the exemplars (seeds from 0), bands run from the worst draw to the best. "
        f"In-domain accuracy on the reporting half, n = {accuracy['n'].iloc[0]:,} images over {tasks}; every method "
        f"with its default parameters except those in its name. {measure_button.origin([measurement])}"
    )
    chart.chart(
        "drift_exemplars", accuracy, name="exemplar_sensitivity", rank=rank, references=lines, caption=caption, of=()
    )
    wide = 100 * accuracy.pivot_table("accuracy", "exemplars", "method", sort=False).sort_index()
    number = st.column_config.NumberColumn
    columns = {name: number(clean_text(name, 40), format="%.1f%%") for name in wide.columns}
    st.dataframe(
        wide.reset_index(),
        hide_index=True,
        column_config={"exemplars": number("Exemplars per task"), **columns},
        alt="Mean in-domain accuracy by number of exemplars and method",
    )
    projection()


def projection() -> None:
    """The term in which RegMean and LOT differ (LOT, Eq. 20)."""
    st.subheader("Why does RegMean without shrinkage need more exemplars than LOT?", anchor=False)
    st.latex(r"\theta_\text{RegMean} = \theta_\text{LOT} - (I - \Pi)\,\theta_0")
    st.latex(r"\Pi = \Big(\sum_k X_k^\top X_k\Big)^{+} \sum_k X_k^\top X_k")
    st.caption(
        "Weights are inputs × outputs here. With α = 1, λ = 1 and the same cut-off the two differ by this term only "
        "(LOT, Eq. 20). Π projects onto the input directions that exemplars excite; the lower curve above is its rank. "
        "LOT solves for the task vector and leaves all other directions as pretrained. RegMean solves for the weights, "
        "so in those directions it also loses the pretrained weights, unless shrinkage (α below 1, its default) fills "
        "them. Each RegMean run keeps a table of the share that it lost."
    )
