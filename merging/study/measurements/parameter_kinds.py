"""Accuracy with each kind of parameter reset to the pretrained one (LOT, Table 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from merging.images.benchmarks.answers import pack_correctness
from merging.models.families import Role
from merging.study.trials.row_answers import RIGHT, split_answers

if TYPE_CHECKING:
    from torch import Tensor

    from merging.models.checkpoint import Checkpoint
    from merging.study.analysis.measurement_subject import MeasurementResult, Subject
    from merging.tasks.context import Context

SPLIT = "reporting"
# The paper's three kinds, and embeddings, which it does not name, as a fourth.
ROLES_BY_KIND: Mapping[str, frozenset[Role]] = {
    "linear weights": frozenset({Role.LINEAR, Role.CONV, Role.PROJECTION}),
    "scales": frozenset({Role.NORM_SCALE}),
    "biases": frozenset({Role.SHIFT}),
    "embeddings": frozenset({Role.EMBEDDING}),
}
NOTHING_RESET = "nothing"  # the kind of the rows with none reset
ABLATION_COLUMNS = ("kind", "task", "title", "correct", "n", "accuracy", "low", "high", RIGHT)


def measure_ablation(subject: Subject, context: Context) -> MeasurementResult:
    """In-domain accuracy with each kind of parameter reset to pretrained, and with none reset.

    It is the table "ablation", with its answers (``row_answers``).

    Raises:
        CheckpointError, TaskError: a checkpoint of the run cannot be read, or the benchmark lacks images for it.
    """
    from merging.engine.evaluation.evaluate import evaluate_answers
    from merging.study.analysis.measurement_subject import MeasurementResult

    subject.refuse_modules()
    pretrained, tasks = subject.checkpoints_on_benchmark.pretrained, list(subject.checkpoints_on_benchmark.experts)
    present_roles = {parameter.role for parameter in pretrained.parameters}
    kinds = {
        NOTHING_RESET: frozenset[Role](),
        **{kind: roles for kind, roles in ROLES_BY_KIND.items() if roles & present_roles},
    }
    stages = subject.split_context(context, dict.fromkeys(kinds, 1.0))
    frames = []
    with subject.open_models_by_task(stages) as merged:
        groups: dict[int, list[str]] = {}
        for task in tasks:
            groups.setdefault(id(merged[task]), []).append(task)
        for kind, roles in kinds.items():
            parts = stages[kind].split({group[0]: float(len(group)) for group in groups.values()})
            for group in groups.values():
                model = reset_roles(merged[group[0]], pretrained, roles)
                answered = evaluate_answers(
                    model, subject.benchmark, splits=(SPLIT,), tasks=group, context=parts[group[0]]
                )
                right = {task: pack_correctness({task: answers}) for task, answers in answered.correctness.items()}
                rows = answered.scores.assign(kind=kind, right=answered.scores["task"].map(right))
                frames.append(rows[list(ABLATION_COLUMNS)])
    table = pd.concat(frames, ignore_index=True)
    return MeasurementResult(split_answers("ablation", table), {"split": SPLIT, "images": int(table["n"].max())})


def reset_roles(merged: Checkpoint, pretrained: Checkpoint, roles: frozenset[Role]) -> dict[str, Tensor]:
    """The merged state dict, each tensor of its stored shape, with those of these roles from the pretrained model."""
    return {
        parameter.name: (pretrained if parameter.role in roles else merged).read(parameter.name)
        for parameter in pretrained.parameters
    }
