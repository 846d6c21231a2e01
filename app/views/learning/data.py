"""The tables of the charts on Learning, put together from those that runs keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data
from app.reading.measurements import WHAT
from merging.study.runs.run import Run, same_models

if TYPE_CHECKING:
    import pandas as pd

# Tables of runs.
COEFFICIENTS, STEPS, TRACE = "coefficients", "coefficient_steps", "learning"
OF_COEFFICIENTS = {"expert", "tensor", "coefficient"}  # columns of the first
LOCALIZATION, OVERLAP = "localization", "overlap"
ADAPT_TRACE = "learning_adapt"  # of an adapt on top of a merge that has a trace of its own
SHIFT, ROUTING, CONFUSION = "feature_shift", "routing", "confusion"
ORACLE = "oracle"  # a table of the measurement of modules
PARTS = "modules"  # what lies beside the merged model of a run with an adapt, also of one that learns nothing
LEARNED = (COEFFICIENTS, TRACE, LOCALIZATION, SHIFT, ROUTING, PARTS)
ROUNDED = 1e-3  # by how much a coefficient may be rounded in a table of steps, at most
MERGED = "merged"  # stands for the coefficients that were merged, among the steps of learning


def learned(run: Run) -> bool:
    """Whether a run has any table of what it learned."""
    return bool(tables(run) & set(LEARNED))


def tables(run: Run) -> set[str]:
    """The names of a run's tables; ``COEFFICIENTS`` is among them only if they were learned."""
    return set(run.tables) - {COEFFICIENTS} | ({COEFFICIENTS} if _coefficient_table(run) else set())


def _coefficient_table(run: Run) -> str:
    """The name of the table of learned coefficients, empty if there is none.

    Other methods, such as AWD and Model Stock, have a table of the same name with other columns. Before the learned one
    in a chain, they leave it the same name with a number.
    """
    named = (name for name in run.tables if name.partition("_")[0] == COEFFICIENTS)
    return next((name for name in named if set(run.columns(name)) >= OF_COEFFICIENTS), "")


def by_tensor(run: Run) -> bool:
    """Whether it learned a coefficient for every tensor, and not one for each expert."""
    name = _coefficient_table(run)
    return bool(name) and bool((data.table(run.id, name)["tensor"] != "").any())


def facts(run: Run) -> pd.DataFrame:
    """What each tensor of a run is: tensor, order, section, role, part, numel."""
    return data.table(run.id, "tensors")[[*WHAT, "numel"]]


def with_facts(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of single tensors with what each tensor is."""
    own = [name for name in rows if name == "tensor" or name not in {*WHAT, "numel"}]
    known = facts(run)
    if not set(rows["tensor"]) <= {*known["tensor"], ""}:
        known = _with_thirds(known)
    return rows[own].merge(known, on="tensor", validate="many_to_one")


def _with_thirds(known: pd.DataFrame) -> pd.DataFrame:
    """The same rows and those of query, key and value of packed tensors."""
    import pandas as pd

    from merging.models.families import QKV, thirds
    from merging.study.runs.run import parameters_of

    pairs = zip(parameters_of(known), known["numel"], strict=True)
    sized = [(part, numel // len(QKV)) for whole, numel in pairs for part in thirds(whole)]
    parts = [(p.name, p.order, p.section, str(p.role), p.part, numel) for p, numel in sized]
    return pd.concat([known, pd.DataFrame(parts, columns=list(known))], ignore_index=True)


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def steps(run_id: str) -> list[int]:
    """The steps whose coefficients were kept, in order; empty if none were."""
    if STEPS not in data.store().run(run_id).tables:
        return []
    return sorted({int(step) for step in data.table(run_id, STEPS)["step"]})


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def coefficients(run_id: str, step: int | None) -> pd.DataFrame:
    """Coefficients of every expert and tensor as they were merged, or at a step of learning."""
    run = data.store().run(run_id)
    final = data.table(run_id, _coefficient_table(run))
    if step is None:
        return with_facts(run, final)
    kept = data.table(run_id, STEPS)
    then = kept[kept["step"] == step][["expert", "tensor", "coefficient"]]
    rest = [name for name in final if name != "coefficient"]
    return with_facts(run, final[rest].merge(then, on=["expert", "tensor"], how="left"))


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def limits(run_id: str) -> tuple[float, float]:
    """The smallest and the largest coefficient of all steps and of the merge; zero is in between."""
    run = data.store().run(run_id)
    names = [name for name in (_coefficient_table(run), STEPS) if name in run.tables]
    values = [data.table(run_id, name)["coefficient"] for name in names]
    return min(0.0, *(float(one.min()) for one in values)), max(float(one.max()) for one in values)


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def lines(run_id: str, tensor: str | None) -> pd.DataFrame:
    """Coefficients over the steps: of one tensor, or the mean over all with the smallest and the largest."""
    if tensor:
        kept = data.table(run_id, STEPS)
        return kept[kept["tensor"] == tensor][["step", "expert", "coefficient"]]
    names = {"coefficient_mean": "coefficient", "coefficient_min": "low", "coefficient_max": "high"}
    trace = data.table(run_id, TRACE)
    if set(names) <= set(trace):
        return trace.rename(columns=names)[["step", "expert", *names.values()]]
    values = data.table(run_id, STEPS).groupby(["step", "expert"], sort=False)["coefficient"]  # an adapt's trace
    return values.agg(coefficient="mean", low="min", high="max").reset_index()


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def sums(run_ids: tuple[str, ...]) -> pd.DataFrame:
    """The sum over experts of each tensor's coefficients, run by run: as learned, and as merged where these differ."""
    import pandas as pd

    frames = []
    for run_id in run_ids:
        run = data.store().run(run_id)
        merged = _summed(coefficients(run_id, None))
        label, taken = text.titled(run), steps(run_id)
        before = _summed(coefficients(run_id, taken[-1])) if taken else merged
        same = bool(((before["total"] - merged["total"]).abs().fillna(0) < ROUNDED * len(run.experts)).all())
        if not same:
            frames.append(before.assign(run=f"{run_id}:learned", label=f"{label}, as learned"))
        frames.append(merged.assign(run=run_id, label=label if same else f"{label}, as merged"))
    return pd.concat(frames, ignore_index=True)


def _summed(rows: pd.DataFrame) -> pd.DataFrame:
    kept = rows["coefficient"] if "pruned" not in rows else rows["coefficient"].mask(rows["pruned"].astype(bool))
    return rows.assign(total=kept).groupby(WHAT, sort=False, as_index=False)["total"].sum(min_count=1)


def masks(run: Run) -> pd.DataFrame:
    """How much of every tensor each expert's mask keeps."""
    return with_facts(run, data.table(run.id, LOCALIZATION))


def overlap(run: Run) -> pd.DataFrame:
    """The share of each mask that another one keeps as well."""
    return data.table(run.id, OVERLAP).rename(columns={"expert": "first", "other": "second"})


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def storage(run_ids: tuple[str, ...]) -> pd.DataFrame:
    """What has to be kept to use each of these runs, in parts."""
    import pandas as pd

    from merging.study.analysis.storage_accounting import storage

    runs = [data.store().run(run_id) for run_id in run_ids]
    table = pd.concat([storage(run).assign(run=run.id, label=text.titled(run)) for run in runs], ignore_index=True)
    return (
        table[table["account"] == "deploy"].groupby(["run", "label", "part"], sort=False, as_index=False)["bytes"].sum()
    )


def alike(run: Run, runs: Sequence[Run]) -> list[Run]:
    """The other runs that learned, of the same models, in the given order."""
    return [other for other in runs if other.id != run.id and same_models(run, other) and learned(other)]
