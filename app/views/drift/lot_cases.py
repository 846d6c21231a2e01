"""LOT on the Drift page: its closed form between two extreme cases, and accuracy by number of exemplars.

Exemplars are training images whose layer inputs LOT and other methods read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import measurements, samples
from app.reading.papers.published_tables import OURS, PUBLISHED
from app.session import address
from app.session.click_errors import guarded_fragment
from app.widgets import chart_view, paper_line
from app.widgets.jobs import measure_button
from merging.recipes.papers.claims import BY_EXEMPLARS, Curve
from merging.recipes.papers.published_figures import SOURCES
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

NOT_MEASURED = (
    "The effect of the number of exemplars on accuracy has not been measured on this benchmark. The measurement merges "
    "and evaluates every method that needs exemplars with 1 to 64 of them, in three different samples. It takes many "
    "minutes, in the background, and you can cancel it."
)
TRAINED_NOTE = "Each task vector is projected onto its own task's inputs, as after gradient descent."
UNTRAINED_NOTE = (
    "Both task vectors act on every direction, even where their own task has no input and training changes nothing."
)
DIRECTIONS_NOTE = (
    " A task's inputs are strongest in its first direction and weakest in its fourth, so the strong directions of A "
    "and B are in different order: in a shared direction their weights differ even at equal energy."
)


@guarded_fragment
def draw_cases() -> None:
    """Draw two tasks on one layer, from orthogonal to shared feature spaces; exact and computed at once."""
    from merging.study.analysis.lot_extreme_cases import RANK, solve_extreme_case

    st.markdown(
        "LOT solves each layer in closed form. This example has two tasks whose inputs span a few directions. In "
        "directions that only one task's inputs excite, LOT follows that task's vector and **no drift remains**. In "
        "shared directions it takes an **average weighted by the energy** of the inputs, and drift remains unless the "
        "two task vectors agree. Move the first slider from one extreme of the paper's analysis (section 5.1) to the "
        "other."
    )
    with st.grid(3, min_column_width=220):
        shared: int = st.slider(
            "Directions that both inputs share", 0, RANK, 2, key=address.SHARED_DIRECTIONS, bind=address.BIND
        )
        energy: float = st.slider(
            "Energy of task B's inputs against task A's", 0.1, 5.0, 1.0, 0.1,
            key=address.ENERGY_RATIO, bind=address.BIND,
        )  # fmt: skip
        agreement: float = st.slider(
            "Cosine of the two task vectors", -1.0, 1.0, 0.0, 0.05, key=address.COSINE, bind=address.BIND
        )
    trained: bool = st.toggle(
        "Task vectors as after training", True, key=address.TRAINED_VECTORS, bind=address.BIND,
        help="Gradient descent changes a layer only along its inputs. Off: both vectors act on every direction.",
    )  # fmt: skip
    case = solve_extreme_case(shared, energy, agreement, trained)
    extreme_sentences = {
        0: "The feature spaces are orthogonal: LOT drifts from neither expert"
        + (", and neither does the sum." if trained else ". The sum does: each vector acts on the other's inputs."),
        RANK: "The feature spaces are the same: LOT is a weighted average of the task vectors.",
    }
    combined_sentence = f"The tasks share {shared} of {RANK} directions: LOT combines both cases."
    caption = (
        f"{extreme_sentences.get(shared, combined_sentence)} Computed just now on this machine's CPU, from synthetic "
        "numbers, seed 0. The sum is Task Arithmetic with scaling 1, the mean is weight averaging. "
        + (TRAINED_NOTE if trained else UNTRAINED_NOTE)
        + (DIRECTIONS_NOTE if 0 < shared < RANK else "")
    )
    description = (
        f"{caption} Energy of task B's inputs against task A's {energy:g}, cosine of the task vectors {agreement:g}."
    )
    with st.grid(2, min_column_width=380):
        with st.container():
            chart_view.draw_chart(
                "drift_case_weights", case.weights, name="lot_case_weights", description=description, sources=()
            )
        with st.container():
            chart_view.draw_chart(
                "drift_case_objective", case.drift, name="lot_case_drift", description=description, sources=()
            )
    st.caption(caption)


def draw_exemplars(stored_runs: Sequence[Run]) -> None:
    """Draw accuracy against the number of exemplars, as a chart and a table."""
    measurement = measurements.find_measurement(measurements.EXEMPLARS)
    if measurement is None:
        measure_button.draw_missing_benchmark(measurements.EXEMPLARS, NOT_MEASURED)
        return
    accuracy, rank = measurements.exemplar_tables(measurement)
    reference_lines = measurements.reference_accuracies(stored_runs)
    sample_count, tasks = plural(measurement.notes["seeds"], "sample"), plural(int(accuracy["tasks"].iloc[0]), "task")
    caption = (
        f"Curves are means over {sample_count} of exemplars (seeds from 0), bands span the worst to the best of them. "
        f"In-domain accuracy on the {samples.scored_part()}, n = {accuracy['n'].iloc[0]:,} images over {tasks}; every "
        f"method has its default parameters except those in its name. {measure_button.origin_in_words([measurement])}"
    )
    chart_view.draw_chart(
        "drift_exemplars", accuracy, name="exemplar_sensitivity", rank=rank, references=reference_lines,
        caption=caption, published=measurements.published_curves(),
        claims=paper_line.claims_in_words("drift/exemplars"), sources=(),
    )  # fmt: skip
    _draw_numbers(accuracy)
    draw_projection()
    draw_whole_weights(measurement)


def _draw_numbers(accuracy: pd.DataFrame) -> None:
    """Draw our means beside those that papers print, one row for each number of exemplars."""
    mean_accuracies = 100 * accuracy.pivot_table("accuracy", "exemplars", "method", sort=False).sort_index()
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        name: number(f"● {clean_text(name, 40)}", format="%.1f%%") for name in mean_accuracies.columns
    }
    table = mean_accuracies.reset_index()
    for curve in BY_EXEMPLARS:
        table[curve.key] = [_printed_accuracy_in_words(curve, int(n)) for n in table["exemplars"]]
        columns[curve.key] = st.column_config.TextColumn(f"◇ {curve.method}, {curve.where}", help=SOURCES[curve.paper])
    columns["exemplars"] = number("Exemplars per task")
    alt = "Mean in-domain accuracy by number of exemplars and method, measured and published"
    paper_line.draw_printed_table(table, [curve.key for curve in BY_EXEMPLARS], alt, columns)
    st.caption(
        f"{OURS}: mean over samples. {PUBLISHED}: means and ± as printed, for the papers' own ViT-B/32 experts and "
        "images; compare only the changes along a column."
    )


def _printed_accuracy_in_words(curve: Curve, exemplars: int) -> str:
    value, spread = curve.values.get(exemplars), curve.spread.get(exemplars)
    return "" if value is None else f"{value}%" + (f" ± {spread}" if spread else "")


def draw_whole_weights(measurement: StoredMeasurement) -> None:
    """Draw the loss from merging whole weights, and the part of it due to the pretrained weights (LOT, Fig. 2)."""
    from merging.study.trials.exemplar_sensitivity import split_losses

    table = split_losses(measurements.measured_table(measurement, "weights"))
    sample_count = plural(measurement.notes["seeds"], "sample")
    caption = (
        "The closed form of LOT with scaling 1, solved once for task vectors and once for whole weights, from the same "
        "exemplars and with the same cut-off. The first part is the loss with task vectors, against each task's own "
        "expert; the second is the additional loss with whole weights, which is the value of (I − Π) θ₀. Means over "
        f"{sample_count} of exemplars, bars from the best to the worst; in-domain accuracy on the "
        f"{samples.scored_part()}, n = {table['n'].iloc[0]:,} images. {measure_button.origin_in_words([measurement])}"
    )
    claims = paper_line.claims_in_words("drift/whole_weights")
    chart_view.draw_chart("drift_altered", table, name="whole_weights", caption=caption, claims=claims, sources=())


def draw_projection() -> None:
    """Draw the term in which RegMean and LOT differ (LOT, Eq. 20)."""
    st.header("Why does RegMean without shrinkage need more exemplars than LOT?", anchor=False)
    st.latex(r"\theta_\text{RegMean} = \theta_\text{LOT} - (I - \Pi)\,\theta_0")
    st.latex(r"\Pi = \Big(\sum_k X_k^\top X_k\Big)^{+} \sum_k X_k^\top X_k")
    st.caption(
        "Weights are inputs × outputs in this formula. With α = 1, λ = 1 and the same cut-off, only this term differs "
        "(LOT, Eq. 20). Π projects onto the input directions that exemplars excite; the lower curve above is its rank. "
        "LOT solves for the task vector and leaves all other directions as pretrained. RegMean solves for the weights, "
        "so in those directions it also loses the pretrained weights, unless shrinkage (α below 1, its default) fills "
        "them. Each RegMean run stores a table of the share that it lost."
    )
