"""Our facts for the comparison with claims of papers, computed from the stored results on this session's benchmark.

On the bundled benchmark they come from its library alone, never from the user's own merges and sweeps.

A claim names its fact, which raises StoreError or is None if a table that it needs is not stored. Runs of one subject
merge the same checkpoints and are scored on the same benchmark. A line of a sweep is one of its recipes, by its index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from app.process_values import store_results
from app.reading import measurements, page_data, program_sweeps, samples, sweeps
from app.session import benchmark_choice as session_benchmark
from merging.base.errors import MergingError, StoreError
from merging.base.files import atomic
from merging.recipes.papers.claims import Claim
from merging.recipes.presets import find_preset
from merging.study.paper_facts import accuracy_facts, network_facts
from merging.study.paper_facts.comparison import Comparison
from merging.study.runs import edit_pairs
from merging.study.runs.run import PRECOMPUTED, Run
from merging.study.sweeps import sweep_storage
from merging.study.trials.row_answers import join_answers

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.paired_scores import Correctness
    from merging.study.analysis.measurement_store import StoredMeasurement
    from merging.study.runs.run_store import Store
    from merging.study.sweeps.sweep import Sweep

Fact = Callable[..., Comparison | None]
STATE_FOLDERS = ("runs", "measured", "sweeps", "points")  # folders of the store that change when something is stored
PRETRAINED = "pretrained"
FACTS_OF_RUNS = ("accuracy", "storage", "coefficients", "depth", "spread", "ablation", "neighbors", "distance")


def compare_claim(claim: Claim) -> Comparison | None:
    """Our side of a claim, computed again after something is stored."""
    return _compare_cached(claim, page_data.store(), _store_state())


def compare_on_other_teams(claim: Claim) -> list[tuple[str, Comparison | None]]:
    """Each other bundled team in words, and its side of a claim; empty on a user's benchmark."""
    compared = []
    for folder in session_benchmark.list_other_teams():
        with session_benchmark.use_folder(folder):
            compared.append((session_benchmark.team_in_words(folder), compare_claim(claim)))
    return compared


def list_claim_runs(claim: Claim) -> frozenset[str] | None:
    """Ids of the stored runs whose numbers a claim compares; None if it compares something else than single runs."""
    return _list_runs_cached(claim, page_data.store(), _store_state())


# ``known_in`` and ``state`` only say which results are the same.
@store_results(8 * page_data.MAX_CACHED)
def _list_runs_cached(claim: Claim, known_in: Store, state: tuple[int, ...]) -> frozenset[str] | None:
    if claim.fact not in FACTS_OF_RUNS:
        return None
    presets = [value for name, value in claim.arguments.items() if name in ("first", "second", "preset")]
    try:
        return frozenset(run.id for run in _find_preset_runs(*presets))
    except MergingError:
        return frozenset()


def _store_state() -> tuple[int, ...]:
    """A state that changes when this machine stores a run, a measurement or a point."""
    root = page_data.store().root
    return tuple(number for name in STATE_FOLDERS for number in atomic.fingerprint_files(root, (name,)) or (0,))


# ``known_in`` and ``state`` only say which results are the same.
@store_results(8 * page_data.MAX_CACHED)
def _compare_cached(claim: Claim, known_in: Store, state: tuple[int, ...]) -> Comparison | None:
    fact = FACTS.get(claim.fact)
    try:
        return fact(**claim.arguments) if fact else None
    except MergingError:  # a table is not stored, there is no benchmark, or this version lacks a run's method
        return None


def _stored_runs() -> list[Run]:
    """Every stored run for this session's benchmark, read once for all claims of a view."""
    return _list_stored_runs(page_data.current_digest(), _store_state())


@st.cache_resource(max_entries=4, show_spinner=False)
def _list_stored_runs(digest: str, state: tuple[int, ...]) -> list[Run]:
    bundled = session_benchmark.is_bundled()
    return [run for run in page_data.stored_runs() if run.provenance == PRECOMPUTED or not bundled]


def may_be_source(source: Run | Sweep) -> bool:
    """Whether facts may come from this run or sweep."""
    counts_own = not session_benchmark.is_bundled()
    if not isinstance(source, Run):
        return not program_sweeps.network_of_sweep(source) and (
            counts_own
            or not (
                sweep_storage.is_own(page_data.store(), source.id)
                or sweep_storage.find_pack(page_data.store(), source.id)
            )
        )
    return source.provenance == PRECOMPUTED or (counts_own and source.benchmark == page_data.current_digest())


def _list_full_merges() -> list[Run]:
    """The evaluated merges of all experts of the benchmark, of one subject."""
    experts = set(page_data.benchmark().experts)
    runs = [run for run in page_data.scored_runs(_stored_runs()) if set(run.experts) == experts]
    return edit_pairs.group_by_subject(runs)[0] if runs else []


def find_preset_run(key: str, runs: Sequence[Run]) -> Run | None:
    """The run of a preset on all experts of the benchmark, among runs of one subject.

    For large models papers set some parameters differently.
    """
    models = page_data.benchmark_models()
    recipe = find_preset(key).recipe(
        models.pretrained, dict(models.experts), large=page_data.is_large(models.pretrained)
    )
    return edit_pairs.find_run(recipe, runs)


def _find_preset_runs(*keys: str) -> list[Run]:
    """The runs of presets; fewer if some are not stored."""
    merges = _list_full_merges()
    return [run for key in keys if (run := find_preset_run(key, merges))]


def _find_preset_pair(first: str, second: str) -> list[Run]:
    """The runs of two presets. Raises StoreError."""
    if len(runs := _find_preset_runs(first, second)) < 2:
        raise StoreError(f"The runs of {first} and {second} are not both stored.")
    return runs


def _find_preset_measurement(kind: str, key: str) -> StoredMeasurement:
    """A measurement of the run of a preset. Raises StoreError."""
    for run in _find_preset_runs(key):
        return _find_measurement(kind, run.id)
    raise StoreError(f"The run of {key} is not stored.")


def _find_measurement(kind: str, run_id: str = "") -> StoredMeasurement:
    """A measurement of a run, or of the benchmark. Raises StoreError."""
    if (measured := measurements.find_measurement(kind, run_id)) is None:
        raise StoreError(f"The measurement {kind} is not stored.")
    return measured


def _compare_accuracy(first: str, second: str, over: str) -> Comparison | None:
    return compare_runs(*_find_preset_pair(first, second), over=over)


def compare_runs(first: Run, second: Run, *, over: str) -> Comparison | None:
    """The averages of two runs on the same images; without the answers of both, the interval is unknown."""
    scored, others = page_data.scored(first), page_data.scored(second)
    return accuracy_facts.compare_scores(scored, others, first.experts, over) if scored and others else None


def _compare_storage(first: str, second: str) -> Comparison:
    from merging.study.analysis.storage_accounting import storage_table

    tables = [storage_table(run) for run in _find_preset_pair(first, second)]
    return network_facts.compare_file_sizes(
        *(float(table[table["account"] == "paper"]["bytes"].sum()) for table in tables)
    )


def _list_sweeps() -> list[Sweep]:
    """The stored sweeps that the benchmark measures."""
    return [sweep for sweep in sweep_storage.list_sweeps(page_data.store()).values() if may_be_source(sweep)]


def _compare_sweep_values(chain: list[str], target: str, first: float, second: float, over: str) -> Comparison | None:
    for sweep in _list_sweeps():
        lines = [line for line, recipe in enumerate(sweep.recipes) if [step.key for step in recipe.steps] == chain]
        if [axis.target for axis in sweep.axes] == [target] and lines:
            answers = _read_sweep_answers(sweep, lines[0])
            if {first, second} <= set(answers):
                experts, half = [name for name, _ in sweep.recipes[lines[0]].experts], samples.scored_part(sweep.split)
                return accuracy_facts.compare_answers(answers[first], answers[second], experts, over, half)
    return None


def _read_sweep_answers(sweep: Sweep, line: int) -> dict[float, Correctness]:
    """{value: the answers of the point}, for the stored points of one recipe of a sweep along one axis."""
    from merging.study.sweeps.points import SampledBenchmark

    benchmark, stored = page_data.benchmark(), sweeps.sweep_results(sweep)
    sampled = SampledBenchmark.from_benchmark(benchmark, sweep.sample.normalize_on(benchmark))
    rows = [row for row in stored.scores.values() if row["line"] == line]
    answers = {float(row["x"]): stored.points[row["point"]].read_correctness(sampled) for row in rows}
    return {value: right for value, right in answers.items() if right is not None}


def _compare_over_range(target: str, first: str, second: str, params: Mapping[str, float]) -> Comparison | None:
    """Two merges with these parameters, compared over the values of ``target``.

    Of each merge, the sweep's first recipe is compared.
    """
    for sweep in _list_sweeps():
        merges = [
            step.key if params.items() <= step.params.values().items() else ""
            for step in (recipe.merge for recipe in sweep.recipes)
        ]
        if [axis.target for axis in sweep.axes] != [target] or not {first, second} <= set(merges):
            continue
        if sweeps.sweep_results(sweep).complete:
            lines = [_read_sweep_answers(sweep, merges.index(merge)) for merge in (first, second)]
            experts = [name for name, _ in sweep.recipes[merges.index(first)].experts]
            if all(lines):
                return accuracy_facts.compare_ranges(*lines, experts, samples.scored_part(sweep.split))
    return None


def _read_answered_table(measured: StoredMeasurement, name: str) -> pd.DataFrame:
    """A table of a measurement with the column "right". Raises StoreError."""
    return join_answers(name, partial(measurements.measured_table, measured))


def _compare_exemplars(method: str, first: int, second: int) -> Comparison | None:
    table = _read_answered_table(_find_measurement(measurements.EXEMPLARS), "accuracy")
    return accuracy_facts.compare_exemplars(table, method, first, second)


def _compare_altered(exemplars: int) -> Comparison | None:
    table = _read_answered_table(_find_measurement(measurements.EXEMPLARS), "weights")
    return accuracy_facts.compare_altered(table, exemplars)


def _compare_task_counts(first: str, second: str, size: int) -> Comparison | None:
    table = _read_answered_table(_find_measurement(measurements.TASK_COUNTS), "counts")
    return accuracy_facts.compare_sizes(table, first, second, size)


def _compare_drm_variant(method: str, variant: str) -> Comparison | None:
    """The whole method, the first of its rows, compared with the method without one part."""
    table = _read_answered_table(_find_measurement(measurements.DRM_ABLATIONS), "ablations")
    rows = table[table["method"] == method]
    other = rows[rows["variant"] == variant]
    return accuracy_facts.compare_rows(rows[:1], other[:1], _list_experts()) if len(other) else None


def _compare_ranks(method: str, cut: float) -> Comparison | None:
    table = _read_answered_table(_find_measurement(measurements.DRM_ABLATIONS), "ranks")
    rows = table[table["method"] == method]
    chosen, whole = rows[rows["cut"] == cut], rows[rows["cut"] == 0]
    return accuracy_facts.compare_rows(chosen[:1], whole[:1], _list_experts()) if len(chosen) else None


def _list_experts() -> list[str]:
    return list(page_data.benchmark().experts)


def _compare_ablation(preset: str, kind: str) -> Comparison | None:
    from merging.study.measurements.parameter_kinds import NOTHING_RESET

    rows = _read_answered_table(_find_preset_measurement(measurements.ABLATION, preset), measurements.ABLATION)
    return accuracy_facts.compare_rows(rows[rows["kind"] == NOTHING_RESET], rows[rows["kind"] == kind])


def _find_full_merge() -> Run:
    """The first merge of all experts. Raises StoreError."""
    for run in _list_full_merges():
        return run
    raise StoreError("No merge of all experts is stored.")


def _compute_masks(ratio: float) -> pd.DataFrame:
    from merging.methods.shared.saliency import apply_ratio

    merges = page_data.list_merges(page_data.stored_runs())
    return apply_ratio(page_data.saliency(_find_full_merge(), merges)[0], ratio, shared=True)


def _compare_mask_overlap(ratio: float) -> Comparison | None:
    return network_facts.compare_mask_overlap(_compute_masks(ratio), ratio)


def _compare_components(ratio: float) -> Comparison | None:
    return network_facts.compare_components(_compute_masks(ratio))


def _compare_depth(preset: str) -> Comparison | None:
    measured = _find_preset_measurement(measurements.DRIFT, preset)
    return network_facts.compare_drift_by_depth(measurements.measured_table(measured, "cumulative"))


def _correlate_drift_and_loss() -> Comparison | None:
    pairs = [
        (run, measurement)
        for run in _list_full_merges()
        if (measurement := measurements.find_measurement(measurements.DRIFT, run.id))
    ]
    points = measurements.drift_and_accuracy(pairs, page_data.stored_runs())
    return network_facts.correlate_drift_with_loss(points) if len(points) else None


def _compare_spread(first: str, second: str) -> Comparison | None:
    from merging.study.analysis.correlation import accuracy_lost

    stored, losses = page_data.stored_runs(), []
    for run in _find_preset_pair(first, second):
        expert_scores, scores = page_data.expert_scores(run.benchmark, stored), page_data.scores(run)
        experts = {task: row["accuracy"] for task, row in expert_scores.items() if task in run.experts}
        if scores is not None and experts:
            losses.append(accuracy_lost(scores, experts))
    return network_facts.compare_evenness(*losses) if len(losses) == 2 else None


def _find_features(key: str) -> StoredMeasurement:
    """The features of a preset's run or of the pretrained model. Raises StoreError."""
    if key != PRETRAINED:
        return _find_preset_measurement(measurements.FEATURES, key)
    if (run := page_data.references(page_data.current_digest(), page_data.stored_runs()).get(key)) is None:
        raise StoreError(f"The run of {key} is not stored.")
    return _find_measurement(measurements.FEATURES, run.id)


def _compare_neighbors(first: str, second: str) -> Comparison | None:
    from merging.study.measurements.features import ALL_DATA_SETS, vote_on_images

    votes = (vote_on_images(_find_features(key), ALL_DATA_SETS) for key in (first, second))
    return network_facts.compare_neighbors(*votes)


def _compare_distance(first: str, second: str) -> Comparison | None:
    import numpy as np

    from merging.study.analysis.separability import reference_distances

    *merged, pretrained = (
        _find_features(key).array("features").astype(np.float32) for key in (first, second, PRETRAINED)
    )
    return network_facts.compare_distances(*(reference_distances(features, pretrained) for features in merged))


def _compare_agreement(first: str, second: str, density: float) -> Comparison | None:
    from merging.study.measurements import signs

    measured = _find_measurement(measurements.SIGNS, _find_full_merge().id)
    counts = signs.read_counts(measurements.measured_table(measured, "votes"), measured.notes["tasks"])
    first_mean, second_mean = (signs.mean_agreement(counts[space, density]) for space in (first, second))
    return network_facts.compare_agreement(
        (first_mean.mean, first_mean.positions), (second_mean.mean, second_mean.positions)
    )


def _compare_times(first: str, second: str) -> Comparison | None:
    table = measurements.measured_table(_find_measurement(measurements.METHOD_TIMES), "times")
    rows = {row["key"]: row for _, row in table.iterrows()}
    return network_facts.compare_times(rows[first], rows[second]) if {first, second} <= set(rows) else None


def _compare_coefficients(first: str, second: str) -> Comparison | None:
    """The coefficients that two runs learned, before they are shrunk: those of the last step."""
    history, tables = "coefficient_steps", []
    for run in _find_preset_pair(first, second):
        if history in run.tables:
            table = page_data.run_table(run.id, history)
            tables.append(table[table["step"] == table["step"].max()])
    return network_facts.compare_coefficient_sums(*tables) if len(tables) == 2 else None


FACTS: Mapping[str, Fact] = {
    "accuracy": _compare_accuracy,
    "storage": _compare_storage,
    "sweep": _compare_sweep_values,
    "range": _compare_over_range,
    "exemplars": _compare_exemplars,
    "altered": _compare_altered,
    "counts": _compare_task_counts,
    "drm": _compare_drm_variant,
    "ranks": _compare_ranks,
    "ablation": _compare_ablation,
    "overlap": _compare_mask_overlap,
    "components": _compare_components,
    "depth": _compare_depth,
    "coefficients": _compare_coefficients,
    "correlation": _correlate_drift_and_loss,
    "spread": _compare_spread,
    "neighbors": _compare_neighbors,
    "distance": _compare_distance,
    "agreement": _compare_agreement,
    "times": _compare_times,
}
PAGE_FACTS = ("swing",)  # names of facts that a page computes itself and passes to ``paper_line.claims_in_words``
