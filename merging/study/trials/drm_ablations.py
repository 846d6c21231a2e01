"""The effect of each part of DRM on accuracy (DRM, Tables 3, 7 and 8), and that of cutting ranks (Fig. 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import torch

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.base.numerics.linear_algebra import left_factors
from merging.base.threads import run_in_threads
from merging.engine.evaluation.evaluate import evaluate_answers
from merging.engine.run_inputs import RunInputs
from merging.images.benchmarks.answers import pack_correctness
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import summarize
from merging.methods.shared.least_squares import as_matrices
from merging.models.families import LINEAR_MAPS, Parameter
from merging.models.formats.model_sources import open_models
from merging.recipes.presets import Preset, find_preset
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_subject import MeasurementResult, PlannedTrial, Subject, TrialInputs
from merging.study.trials.row_answers import RIGHT, split_answers
from merging.study.trials.trial_merges import merge_in_memory, plain_recipe, read_plain_recipe
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    from torch import Tensor

SPLIT = "reporting"
BASE_PRESETS = ("drm_h", "drm_v")  # presets that the ablations start from
WHOLE_METHOD = "whole method"


class AblationVariant(NamedTuple):
    """One row of the table: the part of DRM, the change, and its parameters."""

    part: str
    label: str
    changed: Mapping[str, Any]


VARIANTS = (
    AblationVariant(WHOLE_METHOD, "nothing removed", {}),
    AblationVariant("renormalization", "without renormalization", {"renorm": False}),
    AblationVariant("interference", "without pruning", {"density": 1.0}),
    AblationVariant("interference", "without sign election", {"elect": False}),
    AblationVariant("interference", "without disjoint mean", {"disjoint": False}),
    AblationVariant("way of pruning", "each task by itself", {"pruning": "individual"}),
)
# Singular values below these shares of the largest are cut. The paper cuts shares of the ranks; tables show these, too.
CUT_PARAMETER = "rank_tol"
CUTS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
SCORE_COLUMNS = (
    "in_domain", "in_low", "in_high", "out_of_domain", "out_low", "out_high", "h_score", "tasks_in", "tasks_out",
    "n_in", "n_out",
)  # fmt: skip
MEMORY_FACTOR = 6  # memory relative to a matrix's task vectors: these side by side in both ways, and the factors
RANKS_TRIAL = "singular values"  # the trial before the merges


@dataclass(frozen=True)
class AblationTrial:
    """A variant of a preset on all experts of a benchmark."""

    base: Preset
    variant: AblationVariant
    recipe: Recipe

    @property
    def row(self) -> dict[str, Any]:
        """The cells of the trial's row, without the scores."""
        cells = {"method": self.base.title, "part": self.variant.part, "variant": self.variant.label}
        return {**cells, "chain": self.recipe.text()}


def list_trials(benchmark: Benchmark) -> tuple[list[AblationTrial], list[tuple[float, AblationTrial]]]:
    """The trials of the ablations, and (cut, trial) of the rank truncation."""
    bases = [find_preset(key) for key in BASE_PRESETS]
    cuts = [(cut, AblationVariant("rank truncation", f"cut {cut:g}", {CUT_PARAMETER: cut})) for cut in CUTS]
    ablation_trials = [_make_trial(base, variant, benchmark) for base in bases for variant in VARIANTS]
    return ablation_trials, [(cut, _make_trial(base, variant, benchmark)) for base in bases for cut, variant in cuts]


def _make_trial(base: Preset, variant: AblationVariant, benchmark: Benchmark) -> AblationTrial:
    changed = replace(base, params={**base.params, **variant.changed})
    return AblationTrial(base, variant, changed.recipe(benchmark.pretrained, benchmark.experts))


def measure_ablations(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "ablations" and "ranks": a row per variant of each direction, with its averages in and out of domain.

    Every chain is merged and evaluated once, even for several rows. In "ranks", kept is the mean over matrices of the
    share of ranks above the cut; kept_low and kept_high are the smallest and the largest share of a matrix.

    Raises:
        TaskError: fewer than two experts. CheckpointError: a checkpoint cannot be read. Cancelled.
    """
    benchmark = subject.benchmark
    if len(benchmark.experts) < 2:
        raise TaskError("DRM's parts can only be compared if the benchmark has two experts or more.")
    ablation_trials, truncation_trials = list_trials(benchmark)
    chains = {trial.recipe.text(): trial for trial in (*ablation_trials, *(trial for _, trial in truncation_trials))}
    planned_merges = [PlannedTrial(chain, {"recipe": plain_recipe(trial.recipe)}) for chain, trial in chains.items()]
    shares, *summaries = subject.run_trials([PlannedTrial(RANKS_TRIAL, {"cuts": list(CUTS)}), *planned_merges])
    scores = dict(zip(chains, summaries, strict=True))
    rows = [{**trial.row, **scores[trial.recipe.text()]} for trial in ablation_trials]
    ranks = [
        {**trial.row, "cut": cut, **shares[trial.base.key][CUTS.index(cut)], **scores[trial.recipe.text()]}
        for cut, trial in truncation_trials
    ]
    notes = {"split": SPLIT, "experts": len(benchmark.experts), "chains": len(chains)}
    tables = split_answers("ablations", pd.DataFrame(rows)) | split_answers("ranks", pd.DataFrame(ranks))
    return MeasurementResult(tables, notes)


def compute_trial(inputs: TrialInputs, request: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The averages of a merge in and out of domain with its answers, or the shares of ranks if the request has cuts."""
    if "cuts" in request:
        return measure_kept_shares(inputs.benchmark, request["cuts"], context)
    parts = context.split({"merge": 1.0, "evaluate": 2.0})
    merged = merge_in_memory(read_plain_recipe(inputs.benchmark, request["recipe"]), inputs.benchmark, parts["merge"])
    evaluation = evaluate_answers(merged.state_dict, inputs.benchmark, splits=(SPLIT,), context=parts["evaluate"])
    summary = summarize(evaluation.scores, list(inputs.benchmark.experts), split=SPLIT)
    return {name: getattr(summary, name) for name in SCORE_COLUMNS} | {RIGHT: pack_correctness(evaluation.correctness)}


def measure_kept_shares(
    benchmark: Benchmark, cuts: Sequence[float], context: Context = QUIET
) -> dict[str, list[dict[str, float]]]:
    """{preset: for each cut, the share of ranks above it: mean, minimum and maximum over the matrices}."""
    device = choose_device(context.device)
    inputs = RunInputs(*open_models(benchmark.pretrained, benchmark.experts), None, device)
    linear_maps = [parameter for parameter in inputs.parameters if parameter.role in LINEAR_MAPS]
    meter = context.meter(len(linear_maps))
    shares: dict[str, list[list[float]]] = {key: [] for key in BASE_PRESETS}

    def compute_shares(parameter: Parameter) -> list[list[float]]:
        vectors = as_matrices(inputs.read_whole(parameter))
        return [_compute_shares(blocks, cuts) for blocks in (vectors, vectors.mT)]

    nbytes = (
        MEMORY_FACTOR
        * len(inputs.names)
        * max(inputs.pretrained.infos[parameter.name].nbytes for parameter in linear_maps)
    )
    with run_in_threads((partial(compute_shares, parameter) for parameter in linear_maps), device, nbytes) as results:
        for parameter, by_base in zip(linear_maps, results, strict=True):
            for key, by_cut in zip(BASE_PRESETS, by_base, strict=True):
                shares[key].append(by_cut)
            meter.advance(1, "Counting ranks", parameter.name)
    return {key: [_summarize_shares(column) for column in zip(*rows, strict=True)] for key, rows in shares.items()}


def _summarize_shares(shares: Sequence[float]) -> dict[str, float]:
    return {"kept": sum(shares) / len(shares), "kept_low": min(shares), "kept_high": max(shares)}


def _compute_shares(blocks: Tensor, cuts: Sequence[float]) -> list[float]:
    """For each cut the share of the ranks above it, of blocks (K, m, n) side by side."""
    values = left_factors(blocks, rank_tol=0.0)[1]
    return [float((values > cut * values.max()).to(torch.float64).mean().cpu()) if len(values) else 0.0 for cut in cuts]
