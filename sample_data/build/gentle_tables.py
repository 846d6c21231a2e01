"""Prints the README's table of gentler fine-tuning from gentle_study.csv.

python -m sample_data.build.gentle_tables
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from merging.base.settings import BUNDLED_FOLDER
from merging.study.training_tables import SETTINGS


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; what is not measured is empty."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join('' if 'nan' in cell else cell for cell in cells)} |" for cells in lines)


def format_settings(study: pd.DataFrame) -> str:
    """Each setting's task vectors, experts and claims."""
    head = ("setting", "relative norm, %", "change of a scalar", "cosine", "own task, % (least)", "experts out, %",
            "barrier", "at 1.25, %", "same", "turned (significant)", "lost (significant)")  # fmt: skip
    rows = [
        (row.words, f"{row.norm:.2f}", f"{row.linear_change:.1e}", f"{row.cosine:.3f}",
         f"{row.own:.1f} ({row.own_least:.1f})", f"{row.experts_out:.1f}", f"{row.barrier:.1f}",
         f"{row['line_1.25']:.1f}", f"{row.same:.0f} of {row.claims:.0f}",
         f"{row.turned:.0f} ({row.turned_significant:.0f})", f"{row.lost:.0f} ({row.lost_significant:.0f})")
        for _, row in study.iterrows()
    ]  # fmt: skip
    return format_table(head, rows)


def main() -> None:
    """Print the table."""
    print(format_settings(pd.read_csv(BUNDLED_FOLDER / SETTINGS)))


if __name__ == "__main__":
    main()
