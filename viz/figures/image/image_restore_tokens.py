"""Restoring single tokens: the right class's probability with one token of the reference put in before a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.figures.image.image_restore import mark
from viz.parts import matrix
from viz.parts.depth import Scale
from viz.text import clean_text, percent, safe_text

SPARSE = 40  # tokens above which not every one is named


@chart(
    title="Restoring single tokens",
    question="Which single token brings the answer back?",
    columns=(
        "model", "title", "against", "depth", "token", "row", "column", "followed", "probability", "change", "answer",
        "right",
    ),
    optional=("donor",),
    rows=("model", "depth", "token"),
    empty="No single token has been restored yet.",
)  # fmt: skip
def image_restore_tokens(
    table: pd.DataFrame, *, model: str = "", sentence: str = "", present: bool = False
) -> go.Figure:
    """A row for each block, a column for each token that is put in before it, of one model; the class token is first.

    model (key), title, against (title of the model whose token is put in), depth (before the block of that number),
    token (0: the class token), row and column of a patch, followed (class whose probability it is), probability, change
    of it, answer, and right (whether the answer is the class followed), which a dot marks. The option ``model`` is the
    one that is drawn, by default the first. ``sentence`` says in words what the image's page says.
    """
    table = table.assign(model=table["model"].astype(str))
    shown = model if model in set(table["model"]) else in_order(table["model"])[0]
    own = table[table["model"] == shown]
    depths, tokens = (sorted(int(number) for number in own[name].unique()) for name in ("depth", "token"))
    known = {(row["depth"], row["token"]): row for row in own.to_dict("records")}
    ordered = [[known[depth, token] for token in tokens] for depth in depths]
    values = np.array([[row["change"] for row in rows] for rows in ordered], np.float64)
    names = [f"output ({depth})" if depth == depths[-1] else str(depth) for depth in depths]
    across = [_token(ordered[0][place]) for place in range(len(tokens))]
    fig = matrix.draw(
        matrix.Side("Before block", names, names),
        matrix.Side(f"Token put in, {safe_text(own['title'].iloc[0], 40)}", across, across), 100 * values,
        [_hover(row) for rows in ordered for row in rows],
        Scale("Change of the right<br>class, points", log=False, diverging=True),
    )  # fmt: skip
    fig.update_traces("Cells", customdata=None)
    mark(fig, ordered)
    fig.add_shape(
        type="line", xref="x", yref="y domain", x0=0.5, x1=0.5, y0=0, y1=1, line={"color": theme.INK, "width": 2}
    )
    if len(tokens) > SPARSE:
        places = [0, *range(1, len(across), len(across) // 16)]
        fig.update_xaxes(tickvals=places, ticktext=[across[place] for place in places])
    alt = f"{sentence} {_alt(own)}".strip()
    return theme.finish(fig, "image_restore_tokens", alt, matrix.height(fig, len(depths)), present, shown)


def _token(row: Mapping[Any, Any] | pd.Series) -> str:
    return f"{row['row']}, {row['column']}" if row["token"] else "class token"


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{_token(row)}</b> of {safe_text(row['against'], 40)} before block {row['depth']}<br>"
    words += f"{safe_text(row['followed'], 40)}: {percent(row['probability'])}"
    return f"{words} ({100 * row['change']:+.1f} points)<br>says {safe_text(row['answer'], 40)}".replace(" (-", " (−")


def _alt(own: pd.DataFrame) -> str:
    most = own.nlargest(1, "change").iloc[0]
    return (
        f"Change of the probability of {clean_text(most['followed'], 40)} with single tokens put in: most, "
        f"{100 * most['change']:+.1f} points, with {_token(most)} before block {most['depth']}.".replace(" -", " −")
    )
