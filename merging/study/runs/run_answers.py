"""The stored answers of a run to every image of its benchmark, from which its scores are counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from merging.base.files.tables import SCORES, write_table
from merging.images.benchmarks.answers import ANSWERS, SplitAnswers, answers_table, read_answers
from merging.study.runs.run import REPORTING_SPLIT, Run

if TYPE_CHECKING:
    from merging.engine.evaluation.evaluate import Evaluation
    from merging.images.benchmarks.benchmark import Benchmark


def write_evaluation(folder: Path, evaluation: Evaluation) -> dict[str, dict[str, str]]:
    """Write the tables of scores and of answers into the folder of a run; their schemas by name."""
    return {
        SCORES: write_table(folder, SCORES, evaluation.scores),
        ANSWERS: write_table(folder, ANSWERS, answers_table(evaluation.answers), packed=True),
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
