"""The address of an image on the page Image, which carries the runs on screen."""

from __future__ import annotations

from collections.abc import Sequence

from app.session import address, pages, selection
from app.widgets import page_parts
from merging.study.runs.run import Run

MAX_RUNS = 2  # runs that the page shows with the pretrained model and the expert
LINK_LABEL, LINK_ICON = "Look inside", "image_search"


def image_query(image: str, runs: Sequence[Run]) -> dict[str, str]:
    """The query of the page: the image, task:split:index, and the first merges among the runs.

    Reference models are on the page anyway, and the page cannot show runs with modules on top of their model.
    """
    merges = dict.fromkeys(run.id for run in runs if run.kind == "merge" and not run.adapt)
    ids = ",".join(list(merges)[:MAX_RUNS])
    return {selection.IMAGE: image} | ({address.RUNS: ids} if ids else {})


def draw_image_link(image: str, runs: Sequence[Run], label: str = LINK_LABEL) -> None:
    """Draw a link that opens an image, task:split:index, on the page Image."""
    page_parts.draw_page_link(pages.IMAGE, label, LINK_ICON, **image_query(image, runs))
