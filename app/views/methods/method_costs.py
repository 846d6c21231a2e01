"""Needs and costs of every method: its inputs, its work, and its time relative to one reference merge.

A survey is a pass over all tensors before the merge, for statistics that the method needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import measurements, page_data, samples
from app.session import view_state
from app.widgets import page_parts, paper_line
from app.widgets.jobs import measure_button
from merging.base.errors import MergingError
from merging.engine.chain_work import ChainWork
from merging.engine.needs import DataBeyondClip, needs_beyond_clip
from merging.methods import registry
from merging.methods.method import Adapt, Merge, Method
from merging.recipes.recipe import DEFAULT_MERGE, Exemplars
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import THIS_MACHINE
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (  # key, head, pixels, format, help
    ("title", "Method", 130, None, ""),
    ("needs", "Needs", 190, None, "Besides the checkpoints. Heads are the tasks' zero-shot classifiers."),
    ("here", "Needs on this model", 225, None, "Its inputs for the network of the models chosen on Merge."),
    ("works", "Tensors", 76, None, "In pieces that fit into the processor's cache, or whole."),
    ("gives", "Gives", 134, None, ""),
    ("passes", "Passes", 65, "%d", "Over the tensors of all checkpoints, including the pass that merges."),
    ("reads", "Reads", 76, "bytes", "Bytes of tensors, in all passes. Tensors that an edit drops count, too."),
    ("writes", "Writes", 72, "bytes", "Bytes of the models that it returns; for adaptations, see Learning."),
    ("operations", "GFLOP", 66, "%.1f", "Billions of floating-point operations: products and decompositions of "
     "matrices (an estimate) and passes of towers. Arithmetic scalar by scalar is not counted; see passes."),
    ("images", "Images", 112, None, "Passes of one image through a tower: forward for layer inputs and features, "
     "forward and backward for gradients and for learning."),
    ("ratio", "Time", 66, "%.1f ×", "As a multiple of the reference merge's time: the median of its rounds."),
    ("range", "Range", 92, None, "The smallest and the largest of the rounds."),
)  # fmt: skip
TABLES = {  # heading -> columns; one table of all would not fit into a narrow window
    "Inputs and outputs": ("title", "needs", "here", "works", "gives", "images"),
    "Costs": ("title", "passes", "reads", "writes", "operations", "ratio", "range"),
}
MethodName = tuple[str, str]  # role and key of a method
PRESENTED_SCALE = 1.25  # factor of column widths on a projector
COUNTED_NOTE = (
    "Passes, bytes, operations and images are counted, not timed: for {experts} of {scalars} scalars, at most "
    "{exemplars} exemplars per task, and defaults; edits come before {reference}, adaptations after it."
)
LEARNING_NOTE = (
    "{} Labels of exemplars are used only where the table names them. The time of methods that learn grows with their "
    "images and steps; Merge estimates it before the start. While they learn, memory holds the merged model, its "
    "gradient and one batch, or the features of all images. Adaptations that route also hold what they store of the "
    "experts, block by block if that is large."
)
TEST_DATA_OF_HALF = "Test data are images of the choosing half, unless a recipe states another part."
TEST_DATA_OF_WHOLE = (
    "This benchmark has no separate images to learn from: test data are the scored images, if a recipe allows it."
)
NEEDS_NOTE = (
    "Needs on this model: the inputs of each method for {}, which Mergescope cannot run on data. Layer inputs and "
    "gradients are files that `merging.capture` and `merging.gradient_means` write on the machine with the network's "
    "code."
)
TIMED_NOTE = (
    "Time is a multiple of {reference}'s, which was timed alternately with every method in one run: {clock}, median "
    "and range of at most {rounds} rounds, {where} ({device}; {machine}), on {date}, with Mergescope {mergescope} and "
    "torch {torch}. For small models, reading takes a larger share of the time."
)
OTHER_MACHINE_NOTE = "These times are from another machine. "
NOT_TIMED = "Times have not been measured for these models. "
TIMED_HERE_NOTE = "A new measurement replaces the times above. "
TIMING_OFFER = "Timing every method takes several minutes for models as small as the bundled ones, in the background."


def draw_costs(methods: Sequence[Method], network: str = "") -> None:
    """Draw the sortable tables, the origin of their numbers, and the button that times the methods on this machine.

    ``network`` is the title of the open models' network unless it is CLIP; a column then shows the needs on it.
    """
    work, measured_times = _find_work(), _find_times()
    rows = build_costs_table(
        methods, work, measurements.measured_table(measured_times, "times") if measured_times else None
    )
    columns = {key: _make_column(key, *rest) for key, *rest in COLUMNS}
    for heading, table_columns in TABLES.items():
        settings = {key: columns[key] for key in table_columns if network or key != "here"}
        st.markdown(f"**{heading}**")
        page_parts.draw_table(rows[list(settings)], f"{heading}: every method", settings)
    if network:
        st.caption(NEEDS_NOTE.format(page_text.safe_text(network, 60)))
    if not work:
        st.caption("Without a benchmark, there are no model sizes for which to count the work.")
        return
    learning = LEARNING_NOTE.format(TEST_DATA_OF_WHOLE if samples.is_whole_test_set() else TEST_DATA_OF_HALF)
    times = _timed_in_words(measured_times) if measured_times else ""
    st.caption(f"{_counted_in_words(work.values())} {learning} {times}".strip())
    paper_line.draw_claims(paper_line.claims_in_words("methods/costs"))
    timing_note = OTHER_MACHINE_NOTE if measured_times else NOT_TIMED
    if measured_times and _is_timed_here(measured_times):
        timing_note = TIMED_HERE_NOTE
    measure_button.draw_missing_benchmark(measurements.METHOD_TIMES, timing_note + TIMING_OFFER)


def _make_column(key: str, title: str, width: int, style: str | None, help_text: str) -> Any:
    scaled_width = round(width * (PRESENTED_SCALE if view_state.is_presenting() else 1.0))
    options: dict[str, Any] = {"width": scaled_width, "help": help_text or None, "pinned": key == "title"}
    if style is None:
        return st.column_config.Column(title, **options)
    return st.column_config.NumberColumn(title, format=style, **options)


def build_costs_table(
    methods: Sequence[Method], work: Mapping[MethodName, ChainWork], times: pd.DataFrame | None
) -> pd.DataFrame:
    """One row for each method; ``work`` is by role and key, ``times`` the table of a measurement."""
    import pandas as pd

    times_by_method = {} if times is None else {(row["role"], row["key"]): row for row in times.to_dict("records")}
    names = [(method.role, method.key) for method in methods]
    pairs = list(zip(methods, names, strict=True))
    rows = [
        _make_needs_cells(method)
        | _make_work_cells(method, work.get(name))
        | _make_time_cells(times_by_method.get(name))
        for method, name in pairs
    ]
    return pd.DataFrame(rows, columns=[key for key, *_ in COLUMNS])


def _make_needs_cells(method: Method) -> dict[str, Any]:
    defaults = method.params()
    return {
        "title": method.title,
        "needs": page_text.needs_words(method),
        "here": _needs_on_model(method),
        "works": "in pieces" if method.is_elementwise(defaults) else "whole",
        "gives": _output_in_words(method),
        "passes": 1 + (method.survey_passes if method.surveys(defaults) else 0),
    }


def _needs_on_model(method: Method) -> str:
    """A method's inputs on a network other than CLIP, and the parameter value with which it needs none."""
    needed = needs_beyond_clip(method, method.params())
    if needed == DataBeyondClip.NOTHING:
        return needed
    bounds = method.params.bounds()
    values = [(name, value) for name, bound in bounds.items() for value in bound.choices]
    free_choices = (
        f"; nothing with {bounds[name].label.lower()} {page_text.value_in_words(value)}"
        for name, value in values
        if needs_beyond_clip(method, method.params.build({name: value})) == DataBeyondClip.NOTHING
    )
    return needed + next(free_choices, "")


def _output_in_words(method: Method) -> str:
    if isinstance(method, Adapt):
        return page_text.MODULE_PER_TASK if method.needs_task else "one routed model"
    if isinstance(method, Merge):
        return page_text.ONE_PER_TASK if method.per_task else "one model"
    return "task vectors"


def _make_work_cells(method: Method, work: ChainWork | None) -> dict[str, Any]:
    if work is None:
        return dict.fromkeys(("reads", "writes", "operations", "images"))
    directions = "both ways" if work.backward else "forward"
    images = f"{work.forward:,} {directions}" if work.forward else None
    operations = (work.matrix_flops + work.tower_flops) / 1e9
    cells = {"reads": work.reads, "operations": operations or None, "images": images, "passes": work.passes}
    return cells | {"writes": None if isinstance(method, Adapt) else work.writes}


def _make_time_cells(row: Mapping[Any, Any] | None) -> dict[str, Any]:
    if row is None:
        return {"ratio": None, "range": None}
    if math.isnan(row["ratio"]):  # the method could not be timed
        return {"ratio": None, "range": clean_text(row["problem"], 200)}
    return {"ratio": row["ratio"], "range": f"{row['low']:.1f} to {row['high']:.1f}"}


def _find_work() -> dict[MethodName, ChainWork]:
    """The work of every method on the models of this session's benchmark; empty without one."""
    try:
        return _count_work(page_data.benchmark().digest)
    except MergingError:
        return {}


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _count_work(benchmark: str) -> dict[MethodName, ChainWork]:
    from merging.engine.evaluation.method_work import method_work

    return method_work(page_data.benchmark())


def _counted_in_words(works: Iterable[ChainWork]) -> str:
    work = next(iter(works))
    return COUNTED_NOTE.format(
        experts=plural(work.experts, "expert"), scalars=f"{work.scalars:,}", exemplars=Exemplars().per_task,
        reference=registry.find_merge(DEFAULT_MERGE).title,
    )  # fmt: skip


def _find_times() -> StoredMeasurement | None:
    try:
        return measurements.find_measurement(measurements.METHOD_TIMES)
    except MergingError:
        return None


def _is_timed_here(measured_times: StoredMeasurement) -> bool:
    from merging.base.devices import describe_machine

    return measured_times.provenance == THIS_MACHINE and measured_times.notes["machine"] == describe_machine()


def _timed_in_words(measured_times: StoredMeasurement) -> str:
    notes = measured_times.notes
    facts = {name: clean_text(notes[name], 60) for name in ("clock", "rounds", "machine", "date")}
    versions = {name: clean_text(notes["versions"][name], 20) for name in ("mergescope", "torch")}
    return page_text.safe_text(
        TIMED_NOTE.format(
            reference=registry.find_merge(notes["reference"]).title, device=clean_text(measured_times.device, 40),
            where="on this machine" if _is_timed_here(measured_times) else "on another machine", **facts, **versions,
        ),
        1000,
    )  # fmt: skip
