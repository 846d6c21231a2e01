"""What learning buys in domain and costs out of domain: an arrow from where it starts to where it ends."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz.chart import chart
from viz.drawing import Picture
from viz.figures.scores.plane import draw_runs
from viz.text import clean_text, plural

START = "Start: "  # before the label of a model that an arrow begins at


@chart(
    title="From the start to the learned model",
    question="What does learning buy in domain, and what does it cost out of domain?",
    columns=("run", "label", "kind", "in_domain", "out_of_domain", "h_score", "start"),
    optional=(
        "in_low", "in_high", "out_low", "out_high", "n_in", "n_out", "adapts_on_test", "experts", "tasks_in",
        "tasks_out",
    ),
    rows=("run",),
    picks=("run",),
    empty="No learned merge has been evaluated together with the model that it starts from.",
)  # fmt: skip
def learning_arrows(table: pd.DataFrame, *, selected: str | None = None) -> Picture:
    """The marks of ``id_ood_scatter``, with an arrow to each learned model from its start, which its label names so.

    start (the run of the table that learning starts from; empty for a run that starts from none); the other columns are
    those of ``id_ood_scatter``. A model that learned on the images that it is scored on is marked †. ``selected`` is
    the run with a ring.
    """
    pairs = _pairs(table)
    begun = table["run"].astype(str).isin({start for start, _ in pairs})
    marked = table.assign(label=[START * own + str(label) for own, label in zip(begun, table["label"], strict=True)])
    return draw_runs(marked.drop(columns="start"), selected, pairs)._replace(alt=_alt(table, pairs))


def _pairs(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Start and end of every arrow whose ends both have all scores."""
    finite = np.isfinite(table[["in_domain", "out_of_domain", "h_score"]].to_numpy(np.float64)).all(axis=1)
    scored = table[finite]
    ids = set(scored["run"].astype(str))
    pairs = [(str(row["start"]), str(row["run"])) for row in scored.to_dict("records")]
    return [pair for pair in pairs if pair[0] in ids]


def _alt(table: pd.DataFrame, pairs: list[tuple[str, str]]) -> str:
    rows = {str(row["run"]): row for row in table.to_dict("records")}
    words = f"In- and out-of-domain accuracy of {plural(len(table), 'model')}, with {plural(len(pairs), 'arrow')} from "
    words += "the start of learning to the learned model."
    for start, end in pairs[:2]:
        inside, outside = (100 * float(rows[end][name] - rows[start][name]) for name in ("in_domain", "out_of_domain"))
        label = clean_text(rows[end]["label"], 40)
        words += f" {label}: {inside:+.1f} points in domain, {outside:+.1f} out of domain."
    return words
