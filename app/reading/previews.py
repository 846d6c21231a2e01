"""The process of previews for one session: on its benchmark, and with its newest request only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app import permissions, process_values
from app.page_text import add_titles
from app.permissions import requires
from app.reading import page_data
from app.session.job_queue import session_name
from merging.base.modes import VisitorAction
from merging.images.benchmarks.benchmark import SPLITS
from merging.study.previews.preview_process import PreviewProcess, PreviewRequest, PreviewState, Request
from merging.study.previews.preview_samples import STAGE_SIZES

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipes.recipe import Recipe
    from merging.study.previews.preview import Preview
    from merging.study.runs.estimate import Estimate
    from merging.study.runs.run import Run


@process_values.make_once
def preview_process() -> PreviewProcess:
    """The process of this server, which starts with the first request."""
    runner = page_data.job_queue().runner
    return PreviewProcess(
        runner.device,
        start=runner.spare.start_answering,  # takes the process that waits with its modules loaded, or starts one
        # counts the images in the session's share of the computing; an asker is a ``_session_key``
        charge=lambda asker, images: runner.charge_session(asker.partition("/")[0], images),
    )


def first_answer_seconds(estimate: Estimate) -> float:
    """Estimated seconds to the first answer of a preview: the merge, and few images through it and its reference."""
    tasks = page_data.benchmark().tasks
    images = sum(page_data.benchmark().count_images(task.key, split) for task in tasks for split in SPLITS)
    share = min(2 * STAGE_SIZES[0] * len(tasks) / max(images, 1), 1.0)
    return estimate.seconds - (1 - share) * estimate.phases["evaluating"]


def preview_request(recipe: Recipe, reference: Run | None) -> PreviewRequest:
    """The request for a preview of a recipe, compared with a stored merge (None: with the pretrained model).

    On a shared server it stops after the last of the stages, which use more and more images, and not at all images.
    """
    return PreviewRequest(
        recipe=recipe.to_yaml(), benchmark=str(page_data.job_queue().folder),
        store=str(page_data.store().root.absolute()),
        run=reference.id if reference is not None and reference.kind == "merge" else "",
        per_task=STAGE_SIZES[-1] if permissions.has_others() else None, base=str(Path.cwd()),
    )  # fmt: skip


def preview_state(request: Request, key: str) -> PreviewState | None:
    """The state of a request, if it is the last one that this session made under ``key``."""
    return preview_process().find_state(_session_key(key), request)


@requires(VisitorAction.PREVIEW)
def request_preview(request: Request, key: str) -> None:
    """Replace the last request under ``key``. Raises ModeError in a mode without previews."""
    preview_process().send_request(_session_key(key), request)


def cancel_preview(key: str) -> None:
    """Drop the last request under ``key``."""
    preview_process().cancel(_session_key(key))


def _session_key(key: str) -> str:
    return f"{session_name()}/{key}"


def preview_table(preview: Preview) -> pd.DataFrame:
    """The differences, with columns that mark every row as a preview and name its chain and reference."""
    description = {"half": preview.half, "seed": preview.seed, "against": preview.reference, "of": preview.title}
    return add_titles(preview.changes).assign(kind="preview", **description)
