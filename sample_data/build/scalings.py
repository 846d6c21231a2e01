"""Which scalings are tried, which is chosen, and the table of both: ``scalings.csv`` and the rows of the README.

One grid for all merges. The best of it on the choosing images is chosen, so its accuracy there is too high; what is
reported is measured on the other half. Where two do equally well, the smaller scaling is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path

import pandas as pd

FILE = "scalings.csv"
GRID = tuple(step / 10 for step in range(1, 21))  # holds the published scaling of every merge
# choosing: the number of choosing images in domain that are classified right. in_domain and out_of_domain: means over
# tasks of the accuracy on reporting images, in percent.
COLUMNS = ("recipe", "scaling", "published", "chosen", "choosing", "in_domain", "out_of_domain")
DIGITS = 4  # decimals of a mean


def best_scaling(choosing: Mapping[float, int]) -> float:
    """The scaling with the most right images, the smallest of several."""
    return min(choosing, key=lambda scaling: (-choosing[scaling], scaling))


def reported_scalings(published: float | None, choosing: Mapping[float, int]) -> list[float | None]:
    """The scalings that are measured on reporting images, the published and the chosen one; None for no scaling."""
    return list(dict.fromkeys([published, best_scaling(choosing)])) if choosing else [published]


def table(
    recipe: str,
    published: float | None,
    choosing: Mapping[float, int],
    found: Mapping[float | None, tuple[float, float]],
) -> pd.DataFrame:
    """The rows of one recipe, with ``COLUMNS``; ``found`` has the reported means in and out of domain by scaling."""
    chosen = best_scaling(choosing) if choosing else None
    rows = []
    for scaling in choosing or [None]:
        inside, outside = (round(mean, DIGITS) for mean in found.get(scaling, (nan, nan)))
        marks = scaling == published, scaling == chosen and scaling is not None
        rows.append((recipe, scaling, *marks, choosing.get(scaling) if scaling else None, inside, outside))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"choosing": "Int64"})


def write(folder: Path, rows: pd.DataFrame) -> None:
    """Write the table beside the benchmark."""
    rows.to_csv(folder / FILE, index=False)


def read(folder: Path) -> pd.DataFrame:
    """The table that is written there."""
    return pd.read_csv(folder / FILE, dtype={"choosing": "Int64"})


def reported_rows(rows: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """The rows that are measured on reporting images with their labels in the README: of each recipe the published
    scaling, then the chosen one if it is another."""
    for recipe in dict.fromkeys(rows["recipe"]):
        own = rows[(rows["recipe"] == recipe) & rows["in_domain"].notna()]
        for _, row in own.sort_values("published", ascending=False, kind="stable").iterrows():
            scaled = "" if pd.isna(row["scaling"]) else f", {row['scaling']:g}"
            yield f"{recipe}{scaled}{' (chosen)' if row['chosen'] else ''}", row
