"""The stored answers of a run to every image of its benchmark, from which its scores are counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from merging.base.files.tables import SCORES, write_table
from merging.images.benchmarks.answers import ANSWERS, SplitAnswers, make_answers_table, read_answers
from merging.images.benchmarks.paired_scores import Correctness
from merging.study.runs.run import REPORTING_SPLIT, Run

if TYPE_CHECKING:
    from merging.engine.evaluation.evaluate import Evaluation
    from merging.images.benchmarks.benchmark import Benchmark


def write_evaluation(folder: Path, evaluation: Evaluation) -> dict[str, dict[str, str]]:
    """Write the tables of scores and of answers into the folder of a run; their schemas by name."""
    return {
        SCORES: write_table(folder, SCORES, evaluation.scores),
        ANSWERS: write_table(folder, ANSWERS, make_answers_table(evaluation.answers), packed=True),
    }


def has_answers(run: Run, benchmark: Benchmark) -> bool:
    """Whether the run's answers to the images of this benchmark are stored."""
    return ANSWERS in run.result.schemas and run.benchmark == benchmark.digest


def read_run_answers(run: Run, benchmark: Benchmark, split: str = REPORTING_SPLIT) -> dict[str, SplitAnswers] | None:
    """{data set: a run's answers to a split's images}; None without answers, as of scores from another program.

    Raises:
        StoreError: the answers are damaged.
    """
    return read_answers(run.plain_table(ANSWERS), benchmark, split) if has_answers(run, benchmark) else None


def read_correctness(run: Run, benchmark: Benchmark, split: str = REPORTING_SPLIT) -> Correctness | None:
    """{data set: (n,)}, see ``SplitAnswers.correctness``; None without answers. Raises StoreError."""
    answers = read_run_answers(run, benchmark, split)
    return None if answers is None else {task: one.correctness for task, one in answers.items()}


def join_experts(by_expert: Mapping[str, Correctness]) -> Correctness:
    """Whether "each task with its own expert" is right, from {task: correctness of its expert}.

    For a data set without an expert it is the mean over all experts, because none of them is the right one.
    """
    tasks = dict.fromkeys(task for correctness in by_expert.values() for task in correctness)
    return {
        task: by_expert[task][task]
        if task in by_expert
        else np.mean([correctness[task] for correctness in by_expert.values()], axis=0)
        for task in tasks
    }
