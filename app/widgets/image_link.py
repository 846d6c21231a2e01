"""The address of an image on the page Image, which carries the runs on screen."""

from __future__ import annotations

from collections.abc import Sequence

from app.session import address, pages, selection
from app.widgets import page_parts
from merging.study.runs.run import Run

MOST = 2  # runs that the page shows beside the pretrained model and the expert
LABEL, ICON = "Look inside", "image_search"


def image_query(image: str, runs: Sequence[Run]) -> dict[str, str]:
    """What the address says: the image, task:split:place, and the first merges among the runs.

    Reference models are on the page anyway, and a run with modules on top of its model cannot be looked into.
    """
    merges = dict.fromkeys(run.id for run in runs if run.kind == "merge" and not run.adapt)
    ids = ",".join(list(merges)[:MOST])
    return {selection.IMAGE: image} | ({address.RUNS: ids} if ids else {})


def draw_image_link(image: str, runs: Sequence[Run], label: str = LABEL) -> None:
    """Draw a link that opens an image, task:split:place, on the page Image."""
    page_parts.draw_page_link(pages.IMAGE, label, ICON, **image_query(image, runs))
