"""Whose expert the router gives the most weight, data set by data set."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import NothingToDraw, chart, in_order
from viz.drawing import Picture
from viz.hover import in_words
from viz.parts import depth, matrix
from viz.parts.series import finite_rows
from viz.text import plural

HOVER = (
    "<b>{title}</b>{unseen}<br>{share:percent}[ of {n:count}] images have {expert} as the expert with the most weight"
)
SUREST = " The surest is {title:plain 40}: {share:percent} of the images go to {expert:plain 40}."


@chart(
    title="Confusion of the router",
    question="Whose images does the router take each data set's images for?",
    columns=("task", "title", "in_domain", "expert", "share"),
    optional=("n",),
    rows=("task", "expert"),
    picks=("task", "expert"),
    empty="No image has been routed.",
)
def router_confusion(table: pd.DataFrame) -> Picture:
    """A matrix of data sets by experts; unseen data sets, which have no expert, stand below a line.

    in_domain (bool: one of the experts is the data set's own), share (of the data set's images to which this expert is
    given the most weight, a fraction).
    """
    if finite_rows(table, "share").empty:
        raise NothingToDraw("Nothing to draw: no share is a number.")
    table = table.sort_values("in_domain", ascending=False, kind="stable")
    inside = table["in_domain"].astype(bool)
    table = table.assign(unseen=np.where(inside, "", ", which no expert was trained on"))
    tasks = table.drop_duplicates("task")
    experts = in_order(table["expert"])
    fig = matrix.of_table(
        table, matrix.Side("Images of", tasks["task"].tolist(), tasks["title"].tolist()),
        matrix.Side("Expert with the most weight", experts, experts), ("task", "expert"), "share", HOVER,
        depth.Scale("images", log=False, limits=(0.0, 1.0), percent=True),
    )  # fmt: skip
    own = int(tasks["in_domain"].astype(bool).sum())
    if 0 < own < len(tasks):
        line = {"color": theme.INK, "width": 2}
        fig.add_shape(type="line", x0=-0.5, x1=len(experts) - 0.5, y0=own - 0.5, y1=own - 0.5, line=line)
    words = f"The expert with the most weight for the images of {plural(len(tasks), 'data set')}."
    return Picture(fig, words + in_words(table, "share", SUREST), matrix.height(fig, len(tasks)), str(len(tasks)))
