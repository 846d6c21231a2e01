"""Prints the README's tables of gentler fine-tuning from gentle_study.csv and gentle_claims.csv.

python -m sample_data.build.gentle_tables
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from merging.recipes.presets import find_preset
from merging.study.paper_facts.comparison import Verdict
from merging.study.training_tables import SETTING_CLAIMS, SETTINGS

SAMPLE_DATA = Path(__file__).resolve().parents[1]
SIGNS = {Verdict.SAME: "same", Verdict.OTHER: "other", Verdict.NOT_REPRODUCED: "not shown"}


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; what is not measured is empty."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join('' if 'nan' in cell else cell for cell in cells)} |" for cells in lines)


def format_settings(study: pd.DataFrame) -> str:
    """Each setting's task vectors, experts and claims."""
    head = ("setting", "relative norm, %", "change of a scalar", "cosine", "own task, % (least)", "experts out, %",
            "barrier", "at 1.25, %", "same", "turned", "lost")  # fmt: skip
    rows = [
        (row.words, f"{row.norm:.2f}", f"{row.linear_change:.1e}", f"{row.cosine:.3f}",
         f"{row.own:.1f} ({row.own_least:.1f})", f"{row.experts_out:.1f}", f"{row.barrier:.1f}",
         f"{row['line_1.25']:.1f}", f"{row.same:.0f} of {row.claims:.0f}",
            f"{row.turned:.0f}", f"{row.lost:.0f}")
        for _, row in study.iterrows()
    ]  # fmt: skip
    return format_table(head, rows)


def format_merges(study: pd.DataFrame) -> str:
    """The accuracies of all merges, in and out of domain."""
    names = [column.removesuffix(" in") for column in study if column.endswith(" in")]
    rows = [
        [_title(name), *(f"{row[f'{name} in']:.1f} / {row[f'{name} out']:.1f}" for _, row in study.iterrows())]
        for name in names
    ]
    return format_table(("merge, in / out of domain", *study["setting"]), rows)


def _title(name: str) -> str:
    return name if name == "pretrained" or "," in name else find_preset(name).title


def format_claims(claims: pd.DataFrame) -> str:
    """The difference of each claim's two values, and its verdict."""
    settings = list(dict.fromkeys(claims["setting"]))
    cells = {
        (row.claim, row.setting): f"{row.difference:+.1f} [{row.low:+.1f}, {row.high:+.1f}] {SIGNS[row.verdict]}"
        for row in claims.itertuples()
    }
    rows = [[key, *(cells[key, one].replace("-", "−") for one in settings)] for key in dict.fromkeys(claims["claim"])]
    return format_table(("claim", *settings), rows)


def main() -> None:
    """Print all tables."""
    study, claims = pd.read_csv(SAMPLE_DATA / SETTINGS), pd.read_csv(SAMPLE_DATA / SETTING_CLAIMS)
    print(format_settings(study), format_merges(study), format_claims(claims), sep="\n\n")


if __name__ == "__main__":
    main()
