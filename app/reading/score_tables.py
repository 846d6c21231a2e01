"""The tables of the charts on Scores, made from stored runs.

References are stored evaluations without a merge; their number is in the caches' keys, because further ones change the
tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, samples
from merging.images.benchmarks.metrics import Summary, summarize
from merging.models.task_checkpoints import list_tasks
from merging.study.runs.run import Run
from viz.figure_text import span

if TYPE_CHECKING:
    import pandas as pd

MEANS_NOTE = (
    "Means over data sets on the {} with 95% intervals; images are counted over all data sets. H-score is "
    "the harmonic mean of the two averages."
)
IN_DOMAIN_NOTE = "In domain are the tasks of the merged experts ({}), for the reference models as for the merges."
REFERENCE_NAMES = {"pretrained": "Pretrained", "individual": "Individual experts", "multitask": "Trained on all tasks"}


def averages_table(runs: Sequence[Run], stored: Sequence[Run]) -> pd.DataFrame:
    """A row for each reference and each run of the same experts; ``experts`` lists these, separated by commas."""
    ids, references_known = tuple(run.id for run in runs), len(page_data.references(runs[0].benchmark, stored))
    return _averages_cached(ids, runs[0].benchmark, references_known, stored)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _averages_cached(
    run_ids: tuple[str, ...], benchmark_digest: str | None, references_known: int, _stored: Sequence[Run]
) -> pd.DataFrame:
    import pandas as pd

    runs = [page_data.store().get_run(run_id) for run_id in run_ids]
    experts, benchmark = runs[0].experts, runs[0].benchmark
    expert_accuracies = {task: row["accuracy"] for task, row in page_data.expert_scores(benchmark, _stored).items()}
    rows = [
        _make_row(
            kind, REFERENCE_NAMES[kind], kind, summarize(table, experts, expert_accuracies, page_data.SCORED_SPLIT)
        )
        for kind, table in page_data.reference_scores(benchmark, experts, _stored).items()
        if _evaluates_same_models(kind, runs[0], page_data.references(benchmark, _stored))
    ]
    rows += [
        _make_row(run.id, run.name, _kind(run), summary, run.adapts_on_test)
        for run in runs
        if (summary := page_data.summary(run, _stored))
    ]
    return pd.DataFrame(rows).assign(experts=", ".join(experts))


def _evaluates_same_models(kind: str, run: Run, references: Mapping[str, Run]) -> bool:
    """Whether a reference evaluates the models that a run merged, not others with the same names."""
    needed = {"pretrained": ["pretrained"], "individual": list_tasks(run.experts)}.get(kind, [])
    return all(references[name].inputs.items() <= run.inputs.items() for name in needed)


def _kind(run: Run) -> str:
    """The kind of a merge, as charts name it.

    per_task: one model for each task; task_modules: modules that need the image's task; merge: one model for all.
    """
    return "per_task" if run.per_task else "task_modules" if run.needs_task else "merge"


def _make_row(run: str, label: str, kind: str, summary: Summary, adapts_on_test: bool = False) -> dict[str, Any]:
    return {"run": run, "label": label, "kind": kind, **asdict(summary), "adapts_on_test": adapts_on_test}


def describe_means() -> str:
    """The definition of the averages, in two sentences."""
    return MEANS_NOTE.format(samples.scored_part())


def describe_averages(table: pd.DataFrame) -> str:
    """Sentences on the experts, tasks and images that the averages cover."""
    inside, outside = (f"n = {span(table[name])}" for name in ("n_in", "n_out"))
    tasks = ""
    if "experts" in table and len(table):
        experts = str(table["experts"].iloc[0]).split(", ")
        tasks = f" {IN_DOMAIN_NOTE.format(page_text.safe_text(expert_names.experts_in_words(experts, 300), 320))}"
    return f"{describe_means()} {inside} images in domain, {outside} out of domain.{samples.sampling_sentence()}{tasks}"


def describe_accuracies(table: pd.DataFrame) -> str:
    """A sentence on the images that the accuracies cover."""
    n = span(table["n"])
    part = samples.scored_part_of_each().capitalize()
    return f"{part}, n = {n} images per task, with 95% intervals.{samples.sampling_sentence()}"


def accuracies_table(runs: Sequence[Run], stored: Sequence[Run]) -> pd.DataFrame:
    """One row for each run and task, with the accuracies of the task's expert and of the pretrained model."""
    ids, references_known = tuple(run.id for run in runs), len(page_data.references(runs[0].benchmark, stored))
    return _accuracies_cached(ids, runs[0].benchmark, references_known, stored)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def _accuracies_cached(
    run_ids: tuple[str, ...], benchmark_digest: str | None, references_known: int, _stored: Sequence[Run]
) -> pd.DataFrame:
    import pandas as pd

    runs = [page_data.store().get_run(run_id) for run_id in run_ids]
    experts = {task: row["accuracy"] for task, row in page_data.expert_scores(runs[0].benchmark, _stored).items()}
    pretrained = page_data.reference_scores(runs[0].benchmark, (), _stored).get("pretrained")
    zero_shot = {} if pretrained is None else dict(zip(pretrained["task"], pretrained["accuracy"], strict=True))
    frames = []
    for run in runs:
        table = page_data.scores(run)
        assert table is not None  # only evaluated runs are compared
        inside = {task: experts.get(task, math.nan) for task in run.experts}
        frames.append(
            table.assign(
                run=run.id,
                label=page_text.title_with_note(run),
                in_domain=table["task"].isin(run.experts),
                expert=table["task"].map(inside).astype(float),
                zero_shot=table["task"].map(zero_shot).astype(float),
                chance=1 / table["classes"],
            )
        )
    return pd.concat(frames, ignore_index=True).sort_values("in_domain", ascending=False, kind="stable")
