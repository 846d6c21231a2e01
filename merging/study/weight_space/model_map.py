"""Models in the space of their weights: products of all their changes, exact, and a map of their distances.

A change is a model's weights minus the pretrained ones, over all tensors that merges may change. The map is classical
scaling (Torgerson 1952): the two directions in which the models differ most, which takes no seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.errors import Cancelled, CheckpointError, MergingError, StoreError
from merging.base.files import atomic
from merging.base.files.disk import free_bytes
from merging.base.text import size_text
from merging.models.checkpoint import Checkpoint
from merging.models.model_references import PRETRAINED
from merging.study.analysis.measurement_store import list_merge_inputs
from merging.study.analysis.measurement_subject import (
    CHANGED_INPUTS_MESSAGE,
    MeasurementResult,
    Subject,
    measurements_folder,
)
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.sweeps.weighted_sum import sum_products
from merging.tasks.context import Context, log_warning

EXPERT, MERGE = "expert", "merge"  # kinds of models, beside the pretrained one
NEAR = 1.5  # lengths of the longest expert's change
MERGING_STAGE, READING_STAGE = "merging again", "reading weights"  # stages
Floats = NDArray[np.float64]


class Scaling(NamedTuple):
    """Positions (models, 2) by classical scaling, and the shares (2,) of the variance along both axes."""

    positions: Floats
    shares: Floats


def measure_model_map(subject: Subject, context: Context) -> MeasurementResult:
    """The table "models" (model: a run's id, an expert's name or "pretrained"; kind) and the array "gram".

    "gram" (models, models) has the inner products of all changes in float64, of models in the order of the table: the
    pretrained model, the experts, and the runs of ``list_mapped``. Those that are stored without weights are merged
    again, from this run's files, into a folder that is removed afterwards. The note "left_out" counts the other runs,
    which would have to learn again; "failed" has the ids of runs that cannot be merged again, for reasons that are
    warnings.

    Raises:
        CheckpointError: a file that the recipe names is missing or has changed. StoreError: the disk is too small.
    """
    subject_run, opened = subject.store.get_run(subject.run_id), subject.checkpoints
    peers = [run for run in subject.store.list_runs() if is_mappable(run, subject_run)]
    runs = list_mapped(peers)
    size = sum(info.nbytes for info in opened.pretrained.infos.values())
    _check_disk(size * sum(not run.has_model for run in runs), subject.store)
    stages = context.split({MERGING_STAGE: 1.0 * len(runs), READING_STAGE: 1.0})
    models = {(PRETRAINED, PRETRAINED): opened.pretrained}
    models |= {(name, EXPERT): checkpoint for name, checkpoint in opened.experts.items()}
    parts, failed = stages[MERGING_STAGE].split({run.id: 1.0 for run in runs}), list[str]()
    folder = atomic.make_temporary(measurements_folder(subject.store))
    try:
        for run in runs:
            try:
                models[run.id, MERGE] = _open_merge(run, subject, folder, parts[run.id])
            except Cancelled:
                raise
            except MergingError as error:
                failed.append(run.id)
                context.warn(f"Run {run.id} is not on the map: {error}")
        gram, scalars = sum_products(opened.pretrained, list(models.values()), stages[READING_STAGE])
    finally:
        atomic.remove_temporary(folder)
    table = pd.DataFrame(list(models), columns=["model", "kind"])
    notes = {"scalars": scalars, "left_out": len(peers) - len(runs), "failed": failed}
    return MeasurementResult({"models": table}, notes, {"gram": gram})


def _check_disk(needed: int, store: Store) -> None:
    """Raise StoreError if bytes of merged weights do not fit on the disk of the store."""
    if needed > (free := free_bytes(store.root)):
        raise StoreError(
            f"The map merges runs again that are stored without weights, which takes {size_text(needed)} of disk until "
            f"it is measured; {size_text(free)} are free."
        )


def _open_merge(run: Run, subject: Subject, folder: Path, context: Context) -> Checkpoint:
    """The merged model of a run, merged again into a folder from the subject's files if its weights are not stored."""
    if not run.has_model and run.recipe is not None:
        references, run_id = dict(subject.recipe.experts), run.id
        experts = tuple((name, references[name]) for name, _ in run.recipe.experts)
        run = execute(
            replace(run.recipe, pretrained=subject.recipe.pretrained, experts=experts), Store(folder, libraries=()),
            benchmark=subject.benchmark, evaluate=False, context=replace(context, pause=None, warn=log_warning),
        )  # fmt: skip
        if run.id != run_id:
            raise CheckpointError(CHANGED_INPUTS_MESSAGE)
    return run.open_models()["merged"]


def list_mapped(runs: Sequence[Run]) -> list[Run]:
    """The runs that a map is of, by id: those whose weights are stored or need no learning."""
    return sorted(filter(is_quick, runs), key=lambda run: run.id)


def is_quick(run: Run) -> bool:
    """Whether the weights of a run are stored, or are merged again without learning."""
    try:
        return run.has_model or (run.recipe is not None and not run.recipe.learns)
    except MergingError:  # this version no longer has one of its methods
        return False


def is_mappable(run: Run, other_run: Run) -> bool:
    """Whether a run is one model, without modules on top, that merged the same checkpoints in any order."""
    is_single = run.kind == "merge" and not run.per_task and not run.adapt
    return is_single and sorted(list_merge_inputs(run)) == sorted(list_merge_inputs(other_run))


def squared_distances(gram: Floats) -> Floats:
    """The squared distances (models, models) of vectors with these inner products (models, models)."""
    norms = np.diag(gram)
    squares: Floats = np.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0)
    return squares


def scale_classically(gram: Floats) -> Scaling:
    """The map of vectors with these inner products (models, models), with the vectors' mean in the middle.

    Classical scaling: the eigenvectors of the centered products with the two largest eigenvalues, times their roots.
    The entry of each axis with the largest absolute value is positive.
    """
    centering = np.eye(len(gram)) - 1 / len(gram)
    values, vectors = np.linalg.eigh(centering @ gram @ centering)
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    axes = (vectors * np.sqrt(values))[:, :2]
    axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), range(2)] < 0, -1, 1)
    shares = np.zeros(2)
    shares[: min(2, len(values))] = values[:2] / (values.sum() or 1)
    return Scaling(axes, shares)


def find_near(models: pd.DataFrame, gram: Floats, run_id: str = "") -> NDArray[np.bool_]:
    """Which models (models,) have a change of at most ``NEAR`` times the longest expert's, or are a given run."""
    lengths = np.sqrt(np.maximum(np.diag(gram), 0))
    near = lengths <= NEAR * lengths[(models["kind"] == EXPERT).to_numpy()].max()
    chosen: NDArray[np.bool_] = near | (models["model"] == run_id).to_numpy()
    return chosen


def tabulate_map(
    models: pd.DataFrame, gram: Floats, labels: Mapping[str, str], is_shown: NDArray[np.bool_] | None = None
) -> tuple[pd.DataFrame, Floats]:
    """A row for each shown model (models,), by default all, and the shares (2,) of the axes of their own map.

    Columns: run (the model), label, kind, x, y, length (of its change), nearest (the label of the nearest other model,
    shown or not) and distance (to it), lengths in units of the weights.
    """
    is_shown = np.ones(len(gram), bool) if is_shown is None else is_shown
    scaling, distances = scale_classically(gram[np.ix_(is_shown, is_shown)]), np.sqrt(squared_distances(gram))
    others = distances + np.diag(np.full(len(gram), np.inf))
    names = [labels.get(model, model) for model in models["model"]]
    table = pd.DataFrame({
        "run": models["model"], "label": names, "kind": models["kind"],
        "length": np.sqrt(np.maximum(np.diag(gram), 0)),
        "nearest": [names[index] for index in others.argmin(axis=1)], "distance": others.min(axis=1),
    })[is_shown]  # fmt: skip
    positions = {name: scaling.positions[:, axis] for axis, name in enumerate("xy")}
    return table.assign(**positions).reset_index(drop=True), scaling.shares
