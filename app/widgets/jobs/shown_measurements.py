"""What pages show of a run beyond its scores: its measurements, which of them are missing, and how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from app.reading import measurements, page_data
from merging.base.errors import TaskError
from merging.recipes.recipe import Recipe
from merging.study.analysis import measurement_registry, measurement_store
from merging.study.analysis.measurement_subject import SubjectKind
from merging.study.runs.run import Run

SHORT_SECONDS = 120.0  # measurements that take less in all are made without asking


def list_shown(recipe: Recipe, network: str = "") -> list[str]:
    """The keys of the measurements that pages show of a run of this recipe, without those that take minutes.

    These are putting back and corrupted images.

    ``network`` is that of a network other than CLIP.
    """
    keys = [measurements.SIGNS, measurements.EXPERT_PAIRS] if len(recipe.experts) > 1 else []
    if network:
        return keys + ([measurements.LAYER_DRIFT] if recipe.data_files.layer_inputs else [])
    if not recipe.is_routed:
        keys.append(measurements.DRIFT)
    if not recipe.per_task:
        keys.append(measurements.FEATURES)
    if recipe.adapt:
        keys.append(measurements.MODULES_ON_TEST_IMAGES)
    else:
        keys += [measurements.ABLATION, measurements.RESET_FIRST_ORDER, measurements.ANSWERS_BY_DEPTH]
        keys += [] if recipe.per_task else [measurements.FEATURE_BANK]
    return keys + ([measurements.LOSS_BY_LEARNING_STEP] if recipe.learns else [])


def list_missing(run: Run) -> list[str]:
    """The measurements that pages show of a stored run and that are neither stored nor in the queue."""
    if run.recipe is None or not (run.has_scores or run.network):
        return []
    kinds = [measurement_registry.find_measurement(key) for key in list_shown(run.recipe, run.network)]
    keys = [kind.key for kind in kinds if not kind.run_table or kind.run_table in run.tables]
    queued = {job.kind for job in page_data.job_queue().list_benchmark_jobs() if job.is_live and job.subject == run.id}
    try:
        return [key for key in keys if key not in queued and measurements.find_measurement(key, run.id) is None]
    except TaskError:  # there is no benchmark to measure on
        return []


def list_for_recipe(recipe: Recipe, network: str, stored: Sequence[Run]) -> list[str]:
    """The measurements that a run of this recipe will lack; runs that merge the same experts share some of them."""
    same_experts = [
        run
        for run in stored
        if run.recipe and (run.recipe.pretrained, run.recipe.experts) == (recipe.pretrained, recipe.experts)
    ]
    return [
        key
        for key in list_shown(recipe, network)
        if measurement_registry.find_measurement(key).subject != SubjectKind.EXPERTS
        or not any(measurements.find_measurement(key, run.id) for run in same_experts)
    ]


def expected_seconds(keys: Sequence[str]) -> float:
    """Seconds that these measurements take on this machine, one after the other."""
    return sum(_expected_seconds_cached(key, page_data.store().root) for key in keys)


@st.cache_data(max_entries=page_data.MAX_CACHED, ttl=30, show_spinner=False)
def _expected_seconds_cached(key: str, root: Path) -> float:
    return measurement_store.expect_seconds(key, root)
