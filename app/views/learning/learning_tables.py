"""The tables of the charts on Learning, built from those that runs store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.measurements import TENSOR_COLUMNS
from merging.study.runs.run import Run, have_same_models

if TYPE_CHECKING:
    import pandas as pd

# Names of tables that runs store: merged coefficients, those at some steps, and the trace (losses at every step).
COEFFICIENTS, STEPS, TRACE = "coefficients", "coefficient_steps", "learning"
COEFFICIENT_COLUMNS = {"expert", "tensor", "coefficient"}  # columns of the table of learned coefficients
LOCALIZATION, OVERLAP = "localization", "overlap"  # masks of single scalars: shares kept, and overlap of masks
ADAPT_TRACE = "learning_adapt"  # the trace of an adaptation after a merge that has its own trace
SHIFT, ROUTING, CONFUSION = "feature_shift", "routing", "confusion"
ORACLE = "oracle"  # the measurement's table of accuracies if every image gets its true task's module
MODULE_PARTS = "modules"  # the modules of a run with an adaptation, even if the adaptation learns nothing
LEARNED_TABLES = (COEFFICIENTS, TRACE, LOCALIZATION, SHIFT, ROUTING, MODULE_PARTS)
MAX_ROUNDING_ERROR = 1e-3  # the largest rounding error of a coefficient in a table of steps
MERGED_STEP = "merged"  # the stop of the slider of steps that stands for the merged coefficients


def has_learned(run: Run) -> bool:
    """Whether a run has any table of learned values."""
    return bool(list_table_names(run) & set(LEARNED_TABLES))


def list_table_names(run: Run) -> set[str]:
    """The names of a run's tables, with ``COEFFICIENTS`` only if the coefficients were learned."""
    return set(run.tables) - {COEFFICIENTS} | ({COEFFICIENTS} if _find_coefficient_table(run) else set())


def _find_coefficient_table(run: Run) -> str:
    """The name of the table of learned coefficients; empty if there is none.

    Other methods, such as AWD and Model Stock, write a table of the same name with other columns. After such a method
    in a chain, the table of learned coefficients gets the same name with a number.
    """
    names = (name for name in run.tables if name.partition("_")[0] == COEFFICIENTS)
    return next((name for name in names if set(run.columns(name)) >= COEFFICIENT_COLUMNS), "")


def is_by_tensor(run: Run) -> bool:
    """Whether a run learned a coefficient for every tensor, not only one for each expert."""
    name = _find_coefficient_table(run)
    return bool(name) and bool((page_data.run_table(run.id, name)["tensor"] != "").any())


def add_tensor_facts(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of single tensors, extended by the facts about each tensor."""
    own_columns = [name for name in rows if name == "tensor" or name not in {*TENSOR_COLUMNS, "numel"}]
    facts = page_data.run_table(run.id, "tensors")[[*TENSOR_COLUMNS, "numel"]]
    if not set(rows["tensor"]) <= {*facts["tensor"], ""}:
        facts = _add_qkv_facts(facts)
    return rows[own_columns].merge(facts, on="tensor", validate="many_to_one")


def _add_qkv_facts(facts: pd.DataFrame) -> pd.DataFrame:
    """Facts about tensors, extended by those about query, key and value of packed tensors."""
    import pandas as pd

    from merging.models.families import QKV, qkv_parameters
    from merging.study.runs.run import read_parameters

    pairs = zip(read_parameters(facts), facts["numel"], strict=True)
    parts_with_numel = [(part, numel // len(QKV)) for parameter, numel in pairs for part in qkv_parameters(parameter)]
    parts = [(p.name, p.order, p.section, str(p.role), p.part, numel) for p, numel in parts_with_numel]
    return pd.concat([facts, pd.DataFrame(parts, columns=list(facts))], ignore_index=True)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def list_stored_steps(run_id: str) -> list[int]:
    """The steps whose coefficients are stored, in order; empty if there are none."""
    if STEPS not in page_data.store().get_run(run_id).tables:
        return []
    return sorted({int(step) for step in page_data.run_table(run_id, STEPS)["step"]})


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def read_coefficients(run_id: str, step: int | None) -> pd.DataFrame:
    """The coefficients of every expert and tensor at a step of learning; the merged ones if ``step`` is None."""
    run = page_data.store().get_run(run_id)
    merged = page_data.run_table(run_id, _find_coefficient_table(run))
    if step is None:
        return add_tensor_facts(run, merged)
    by_step = page_data.run_table(run_id, STEPS)
    at_step = by_step[by_step["step"] == step][["expert", "tensor", "coefficient"]]
    other_columns = [name for name in merged if name != "coefficient"]
    return add_tensor_facts(run, merged[other_columns].merge(at_step, on=["expert", "tensor"], how="left"))


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def find_coefficient_range(run_id: str) -> tuple[float, float]:
    """The smallest coefficient of all steps and of the merge, or 0 if that is smaller, and the largest one."""
    run = page_data.store().get_run(run_id)
    names = [name for name in (_find_coefficient_table(run), STEPS) if name in run.tables]
    values = [page_data.run_table(run_id, name)["coefficient"] for name in names]
    return min(0.0, *(float(column.min()) for column in values)), max(float(column.max()) for column in values)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def read_coefficient_lines(run_id: str, tensor: str | None) -> pd.DataFrame:
    """Coefficients over the steps: those of one tensor, or the mean, smallest and largest over all tensors."""
    if tensor:
        by_step = page_data.run_table(run_id, STEPS)
        return by_step[by_step["tensor"] == tensor][["step", "expert", "coefficient"]]
    names = {"coefficient_mean": "coefficient", "coefficient_min": "low", "coefficient_max": "high"}
    trace = page_data.run_table(run_id, TRACE)
    if set(names) <= set(trace):
        return trace.rename(columns=names)[["step", "expert", *names.values()]]
    # The trace of an adaptation has no coefficients.
    values = page_data.run_table(run_id, STEPS).groupby(["step", "expert"], sort=False)["coefficient"]
    return values.agg(coefficient="mean", low="min", high="max").reset_index()


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def sum_coefficients(run_ids: tuple[str, ...]) -> pd.DataFrame:
    """The sum over experts of each tensor's coefficients, run by run.

    A run whose merged coefficients differ from the learned ones has rows for both.
    """
    import pandas as pd

    frames = []
    for run_id in run_ids:
        run = page_data.store().get_run(run_id)
        merged = _sum_over_experts(read_coefficients(run_id, None))
        label, steps = page_text.title_with_note(run), list_stored_steps(run_id)
        learned = _sum_over_experts(read_coefficients(run_id, steps[-1])) if steps else merged
        is_unchanged = bool(
            ((learned["total"] - merged["total"]).abs().fillna(0) < MAX_ROUNDING_ERROR * len(run.experts)).all()
        )
        if not is_unchanged:
            frames.append(learned.assign(run=f"{run_id}:learned", label=f"{label}, as learned"))
        frames.append(merged.assign(run=run_id, label=label if is_unchanged else f"{label}, as merged"))
    return pd.concat(frames, ignore_index=True)


def _sum_over_experts(rows: pd.DataFrame) -> pd.DataFrame:
    unpruned = rows["coefficient"] if "pruned" not in rows else rows["coefficient"].mask(rows["pruned"].astype(bool))
    return rows.assign(total=unpruned).groupby(TENSOR_COLUMNS, sort=False, as_index=False)["total"].sum(min_count=1)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def list_storage_parts(run_ids: tuple[str, ...]) -> pd.DataFrame:
    """The bytes that users of each run need, one row for each run and part."""
    import pandas as pd

    from merging.study.analysis.storage_accounting import storage_table

    runs = [page_data.store().get_run(run_id) for run_id in run_ids]
    table = pd.concat(
        [storage_table(run).assign(run=run.id, label=page_text.title_with_note(run)) for run in runs], ignore_index=True
    )
    return (
        table[table["account"] == "deploy"].groupby(["run", "label", "part"], sort=False, as_index=False)["bytes"].sum()
    )


def find_comparable_runs(run: Run, runs: Sequence[Run]) -> list[Run]:
    """The other runs on the same models that learned, in the order of ``runs``."""
    return [
        other_run
        for other_run in runs
        if other_run.id != run.id and have_same_models(run, other_run) and has_learned(other_run)
    ]
