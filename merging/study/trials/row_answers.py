"""The answers behind the rows of a table of accuracies: a second table, whose rows follow those of the first.

They stay out of the first table, which pages show and people download.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from merging.images.benchmarks.answers import unpack_correctness
from merging.images.benchmarks.paired_scores import Correctness

RIGHT = "right"  # the column: which images are right, as text


def split_answers(name: str, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The table without its column "right", under its ``name``, and that column as the table of its answers."""
    return {name: table.drop(columns=RIGHT), name_answers(name): table[[RIGHT]]}


def name_answers(name: str) -> str:
    """The name of the table with the answers behind the rows of another table."""
    return f"{name}_answers"


def join_answers(name: str, read_table: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """A stored table with the column "right" of its answers, {data set: (n,)}. Raises StoreError."""
    texts = read_table(name_answers(name))[RIGHT]
    return read_table(name).assign(**{RIGHT: texts.map(unpack_correctness)})


def join_rows(rows: pd.DataFrame) -> Correctness:
    """{data set: (n,)} of rows of ``join_answers``, one for each data set or for all."""
    return {task: right for answers in rows[RIGHT] for task, right in answers.items()}
