"""Models in the space of their weights: products of all their changes, exact, and a map of their distances.

A change is a model's weights minus the pretrained ones, over all tensors that merges may change. The map is classical
scaling (Torgerson 1952): the two directions in which the models differ most, which takes no seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from merging.base.errors import MergingError
from merging.models.checkpoint import Checkpoint
from merging.models.families import UNMERGED
from merging.study.analysis.measurement_store import have_same_measurements
from merging.study.analysis.measurement_subject import MeasurementResult, Subject, SubjectKind
from merging.study.runs.run import Run
from merging.tasks.context import Context

PRETRAINED, EXPERT, MERGE = "pretrained", "expert", "merge"  # kinds of models
NEAR = 1.5  # lengths of the longest expert's change
PIECE_SCALARS = 1 << 22  # scalars of all models together that are in memory at a time
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
    again; the note "left_out" counts the other runs, which would have to learn again.

    Raises:
        CheckpointError: a file that a recipe names is missing or has changed.
    """
    subject_run, opened = subject.store.get_run(subject.run_id), subject.checkpoints
    peers = [run for run in subject.store.list_runs() if is_mappable(run, subject_run)]
    runs = list_mapped(peers, subject_run)
    stages = context.split({MERGING_STAGE: 1.0 * len(runs), READING_STAGE: 1.0})
    models: dict[tuple[str, str], Checkpoint] = {(PRETRAINED, PRETRAINED): opened.pretrained}
    models |= {(name, EXPERT): checkpoint for name, checkpoint in opened.experts.items()}
    with ExitStack() as opened_runs:
        parts = stages[MERGING_STAGE].split({run.id: 1.0 for run in runs})
        for run in runs:
            one = replace(subject, run_id=run.id, kind=SubjectKind.RUN)
            with_run = one.open_models(one.split_context(parts[run.id], {}))
            models[run.id, MERGE] = opened_runs.enter_context(with_run)["merged"]
        gram, scalars = sum_products(opened.pretrained, list(models.values()), stages[READING_STAGE])
    table = pd.DataFrame(list(models), columns=["model", "kind"])
    notes = {"scalars": scalars, "left_out": len(peers) - len(runs)}
    return MeasurementResult({"models": table}, notes, {"gram": gram})


def list_mapped(runs: Sequence[Run], subject_run: Run) -> list[Run]:
    """The runs that a map is of, by id: ``subject_run``, and those whose weights are stored or need no learning."""
    return sorted((run for run in runs if run.id == subject_run.id or is_quick(run)), key=lambda run: run.id)


def is_quick(run: Run) -> bool:
    """Whether the weights of a run are stored, or are merged again without learning."""
    try:
        return run.has_model or (run.recipe is not None and not run.recipe.learns)
    except MergingError:  # this version no longer has one of its methods
        return False


def is_mappable(run: Run, other_run: Run) -> bool:
    """Whether a run is one model, without modules on top, that merged the same checkpoints as another run."""
    return run.kind == "merge" and not run.per_task and not run.adapt and have_same_measurements(run, other_run)


def sum_products(pretrained: Checkpoint, models: Sequence[Checkpoint], context: Context) -> tuple[Floats, int]:
    """The inner products (models, models) of the changes of models, and the number of scalars that they are over.

    Weights are read in pieces, so that memory does not grow with the models.
    """
    names = [parameter.name for parameter in pretrained.parameters if parameter.role not in UNMERGED]
    names = [name for name in names if pretrained.infos[name].dtype.is_floating_point]
    scalars = sum(pretrained.infos[name].numel for name in names)
    meter = context.meter(scalars)
    gram = torch.zeros(len(models), len(models), dtype=torch.float64)
    piece = max(1, PIECE_SCALARS // len(models))
    for name in names:
        for start in range(0, size := pretrained.infos[name].numel, piece):
            stop = min(size, start + piece)
            base = pretrained.read_flat(name, start, stop).double()
            changes = torch.stack([model.read_flat(name, start, stop).double() - base for model in models])
            gram += changes @ changes.T
            meter.advance(stop - start, "Comparing weights", name)
    return gram.numpy(), scalars


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


def find_near(models: pd.DataFrame, gram: Floats) -> NDArray[np.bool_]:
    """Which models (models,) have a change of at most ``NEAR`` times the length of the longest expert's."""
    lengths = np.sqrt(np.maximum(np.diag(gram), 0))
    near: NDArray[np.bool_] = lengths <= NEAR * lengths[(models["kind"] == EXPERT).to_numpy()].max()
    return near


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
