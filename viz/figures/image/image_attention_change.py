"""Between two models: how much of the class token's attention is somewhere else, by block and head."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.parts import matrix, picture_grid
from viz.parts.depth import Scale
from viz.text import clean_text, plural, real, safe_text


@chart(
    title="Change of attention",
    question="In which heads does the run look elsewhere than its reference?",
    columns=("model", "title", "against", "block", "head", "distance"),
    optional=("other",),
    rows=("model", "block", "head"),
    empty="There are no two models to compare.",
)
def image_attention_change(table: pd.DataFrame, *, sentence: str = "", present: bool = False) -> go.Figure:
    """Half the L1 distance of the class token's rows of two models: 0 looks alike, 1 looks elsewhere entirely.

    model (key), title, against (title of the reference), block, head (from 0), distance in [0, 1]. ``sentence`` says in
    words what the image's page says.
    """
    table = table.assign(model=table["model"].astype(str))
    models = in_order(table["model"])
    titles = picture_grid.titles_of(table)
    blocks, heads = (sorted(int(number) for number in table[name].unique()) for name in ("block", "head"))
    columns = [(model, head) for model in models for head in heads]
    known = {(row["block"], row["model"], row["head"]): row for row in table.to_dict("records")}
    values = np.array([[known[block, *column]["distance"] for column in columns] for block in blocks], np.float64)
    texts = [
        f"<b>block {block}, head {head}</b><br>{safe_text(titles[model], 40)} and "
        f"{safe_text(known[block, model, head]['against'], 40)}<br>{real(known[block, model, head]['distance'])} "
        "of the attention is elsewhere"
        for block in blocks
        for model, head in columns
    ]
    across = [str(head) for _, head in columns]
    fig = matrix.draw(
        matrix.Side("Block", [str(block) for block in blocks], [str(block) for block in blocks]),
        matrix.Side("Head", across, across), values, texts,
        Scale("Half the L1<br>distance", log=False, limits=(0.0, 1.0)),
    )  # fmt: skip
    matrix.group(fig, [titles[model] for model in models], len(heads), len(blocks))
    fig.update_traces("Cells", customdata=None)
    alt = f"{sentence} {_alt(table, titles)}".strip()
    height = matrix.height(fig, len(blocks))
    return theme.finish(fig, "image_attention_change", alt, height, present, ",".join(models))


def _alt(table: pd.DataFrame, titles: dict[str, str]) -> str:
    most = table.nlargest(1, "distance").iloc[0]
    return (
        f"Change of attention by block and head for {plural(len(titles), 'run')}: most, {real(most['distance'])}, in "
        f"block {most['block']}, head {most['head']} of {clean_text(most['title'], 40)}."
    )
