"""Tables of previews, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names


def preview_change(tasks: int = 8, seed: int = 0) -> pd.DataFrame:
    """Three averages, then that many data sets, every third out of domain."""
    rng = np.random.default_rng(seed)
    titles = ["In domain", "Out of domain", "H-score", *names(tasks)]
    groups = ["average"] * 3 + ["out of domain" if place % 3 == 2 else "in domain" for place in range(tasks)]
    reference, difference = rng.uniform(0.4, 0.7, tasks + 3), rng.normal(0, 0.1, tasks + 3)
    half = rng.uniform(0.02, 0.2, tasks + 3)
    return pd.DataFrame(
        {
            "over": [f"o{place}" for place in range(tasks + 3)],
            "title": titles,
            "group": groups,
            "n": [16 * tasks] * 3 + [16] * tasks,
            "accuracy": reference + difference,
            "reference": reference,
            "difference": difference,
            "low": difference - half,
            "high": difference + half,
            "kind": "preview",
            "half": "choosing",
            "seed": 0,
            "against": "Task arithmetic",
        }
    )
