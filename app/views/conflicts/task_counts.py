"""The number of tasks on the Conflicts page: accuracy against the number of merged experts, and paired t-tests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import measurements, samples
from app.reading.figures import cache_table
from app.session import address
from app.widgets import chart_view, page_parts, paper_line
from app.widgets.jobs import measure_button
from viz.figure_text import span

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.analysis.measurement_store import StoredMeasurement

NOT_MEASURED = (
    "The effect of the number of tasks on accuracy has not been measured on this benchmark. This merges up to ten "
    "subsets of every size with several methods. It takes ten minutes or more, in the background, and you can cancel "
    "it."
)
TEST_NOTE = (
    "Positive numbers favor **{0}**. A paired t-test asks whether the mean difference is large against its scatter "
    "from subset to subset, assuming independent subsets. They are not: they share experts and images, and "
    "larger subsets overlap more, so p is **too small**, above all on the right. A small p means that the sign of the "
    "difference hardly depends on which of *these* experts are merged. It says nothing about other experts, other "
    "images or other parameters, nor about whether the difference matters. There is no correction for the number of "
    "tests. With one subset there is no test. The paper prints p-values even then, so its pairs must be smaller units "
    "than subsets."
)


def draw_view() -> None:
    """Draw accuracy against the number of merged experts (DRM, Fig. 2), and paired t-tests (DRM, Table 5)."""
    if (measurement := measurements.find_measurement(measurements.TASK_COUNTS)) is None:
        measure_button.draw_missing_benchmark(measurements.TASK_COUNTS, NOT_MEASURED)
        return
    table = _read_averages(measurement)
    chart_view.draw_question("task_counts")
    relative = st.toggle("Relative to each task's own expert", key=address.RELATIVE_ACCURACY, bind=address.BIND)
    value = "normalized" if relative else "accuracy"
    notes, images = measurement.notes, span(measurements.measured_table(measurement, "counts")["n"])
    caption = (
        f"Each dot is one subset of the experts; the line connects the means. At most {notes['most']} subsets of each "
        f"size (all of them if there are fewer), the same for every method: {notes['subsets']} subsets, sampled with "
        f"seed {notes['seed']}. Accuracy is on the tasks of the merged experts only, on n = {images} images of each "
        f"task's {samples.scored_part()}, the same images for all dots. Every method has its preset's "
        "parameters at every size; a scaling chosen for eight experts, such as Task Arithmetic's, is not optimal for "
        "two. DARE-TIES samples its masks with seed 0. "
        f"{measure_button.origin_in_words([measurement])}"
    )
    chart_view.draw_chart(
        "task_counts", table, name="number_of_tasks", question_drawn=True, value=value, caption=caption,
        claims=paper_line.claims_in_words("conflicts/task_counts"), sources=(),
    )  # fmt: skip
    _draw_tests(table, value)


@cache_table
def _read_averages(measurement: StoredMeasurement) -> pd.DataFrame:
    from merging.study.trials.task_counts import average_counts

    return average_counts(*(measurements.measured_table(measurement, name) for name in ("counts", "experts")))


@cache_table
def _run_paired_tests(table: pd.DataFrame, method: str, value: str) -> pd.DataFrame:
    from merging.study.trials.task_counts import paired_tests

    return paired_tests(table, method, value)


def _draw_tests(table: pd.DataFrame, value: str) -> None:
    from merging.study.trials.task_counts import REFERENCE_TITLE

    st.header("Is one method better than another, whichever experts are merged?", anchor=False)
    methods = list(dict.fromkeys(table["method"]))
    default_index = methods.index(REFERENCE_TITLE) if REFERENCE_TITLE in methods else 0
    method = st.selectbox("Compare", methods, default_index, key=address.TESTED_METHOD, bind=address.BIND, width=320)
    tests = _run_paired_tests(table, method, value)
    cells = tests.assign(
        cell=[_test_in_words(difference, p) for difference, p in zip(tests["difference"], tests["p"], strict=True)],
        size=[f"{size} experts" for size in tests["size"]],
    )
    table_by_size = cells.pivot(index="method", columns="size", values="cell")
    table_by_size = table_by_size.loc[list(dict.fromkeys(cells["method"])), list(dict.fromkeys(cells["size"]))]
    pairs = cells.drop_duplicates("size").set_index("size")["pairs"]
    table_by_size.loc["Pairs"] = [str(pairs[size]) for size in table_by_size.columns]
    columns: dict[str, Any] = {name: st.column_config.TextColumn(name, width=125) for name in table_by_size.columns}
    columns["method"] = st.column_config.TextColumn(f"{method} against", width=210, pinned=True)
    alt = f"Paired t-tests of {method} against every other method, by number of experts"
    page_parts.draw_table(table_by_size.reset_index(), alt, columns)
    st.caption(
        "Mean difference in percentage points and the one-sided p of a paired t-test over subsets, as in the paper's "
        f"Table 5. {TEST_NOTE.format(page_text.safe_text(method, 40))}"
    )


def _test_in_words(difference: float, p: float) -> str:
    probability = "—" if math.isnan(p) else f"p = {p:.3f}" if p >= 0.001 else f"p = {p:.0e}"
    return f"{100 * difference:+.1f}, {probability}"
