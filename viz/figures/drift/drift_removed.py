"""What CAT removes from every task vector, tensor by tensor, and how much conflict it finds."""

from __future__ import annotations

import pandas as pd

from viz.chart import TENSOR, chart, one_of
from viz.drawing import Picture
from viz.hover import LAYER, in_words
from viz.parts import depth
from viz.text import plural

SCALES = {
    "removed": depth.Scale("share of<br>squared norm", log=False, percent=True),
    "conflict_sum": depth.Scale("conflict,<br>summed"),
    "conflict_top": depth.Scale("worst<br>conflict"),
}
HOVER = (
    "<b>{tensor:short}</b><br>{title} loses {removed:percent 2} of its squared norm<br>conflicts with the others: "
    f"{{conflicts:count}}, worst {{conflict_top:real}}, sum {{conflict_sum:real}}<br>{LAYER}"
)
MOST = " Most in {tensor:plain}: {title:plain} loses {removed:percent} of its squared norm there."


@chart(
    title="What CAT removes",
    question="How much of each task vector does CAT remove, and where is the conflict?",
    columns=(*TENSOR, "expert", "removed", "conflicts", "conflict_sum", "conflict_top"),
    optional=("title",),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This run did not remove conflicts.",
)
def drift_removed(
    table: pd.DataFrame,
    *,
    value: str = "removed",
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
) -> Picture:
    """A heat map, experts by tensors in forward order.

    removed (share of the squared norm of the expert's task vector that is projected out), conflicts (directions or
    scalars of the others' vectors that disturb the expert's task), conflict_sum and conflict_top (their eigenvalues:
    how much they disturb that task more than they help their own, in squared output units). Conflicts are on a
    logarithmic scale.
    """
    scale = SCALES[one_of("value", value, tuple(SCALES))]
    table = table if "title" in table else table.assign(title=table["expert"])
    titles = table.drop_duplicates("expert")["title"].tolist()
    tensors = plural(table["tensor"].nunique(), "tensor")
    words = f"What is removed from {plural(len(titles), 'task vector')} in {tensors}."
    return depth.heat_map(
        table, "expert", value, scale._replace(limits=limits), HOVER, selected, titles,
        alt=words + in_words(table, "removed", MOST), state=value,
    )  # fmt: skip
