"""The process of previews for one session: on its benchmark, and with its newest request only."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from app import permissions, process_values
from app.page_text import add_titles
from app.permissions import requires
from app.reading import listed_models, page_data
from app.session import benchmark_choice
from app.session.job_queue import session_name
from merging.base.errors import MergingError
from merging.base.files.paths import path_fingerprint
from merging.base.modes import VisitorAction
from merging.images.benchmarks.answers import Scored
from merging.images.benchmarks.benchmark import SPLITS
from merging.images.benchmarks.benchmark_folders import state_of
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.previews.preview import Preview, StoredModel
from merging.study.previews.preview_process import PreviewProcess, PreviewRequest, PreviewState, Request
from merging.study.previews.preview_samples import STAGE_SIZES
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.sweeps.points import Point, PointSample, SampledBenchmark, find_scores_of_merge

if TYPE_CHECKING:
    import pandas as pd

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


def find_stored_change(recipe: Recipe, request: PreviewRequest, reference: Run | None) -> Preview | None:
    """The change from the stored scores of both models on the whole choosing half; None unless both are stored.

    ``reference`` is compared with unless the request names a recipe. Nothing is merged or evaluated.
    """
    with contextlib.suppress(MergingError):  # a file is missing: the preview itself says so
        opened = _open_if_read(recipe)
        point = _find_scores(opened.run_id()) if opened else None
        if opened is None or point is None:
            return None
        if request.reference:
            last = Recipe.from_yaml(request.reference)
            opened_last = _open_if_read(last)
            other, name = _find_scores(opened_last.run_id()) if opened_last else None, last.title
        else:
            reference = reference if request.run else _find_pretrained(opened)
            other, name = (_find_scores(reference.id), reference.name) if reference else (None, "")
        if other is not None:
            titles = {task.key: task.title for task in page_data.benchmark().tasks}
            folder = benchmark_choice.benchmark_folder()
            # Images in the benchmark that is bundled do not change.
            sampled = _open_choosing_half(folder, (*state_of(folder), *path_fingerprint(folder / "data")))
            models = (
                StoredModel(title, Scored(scored.scores, scored.read_correctness(sampled)), scored.device)
                for title, scored in ((recipe.title, point), (name, other))
            )
            return Preview.from_stored(*models, list(opened.experts), titles)
    return None


@lru_cache(maxsize=8)
def _open_choosing_half(folder: Path, state: tuple[int, ...]) -> SampledBenchmark:
    """The choosing half of this session's benchmark, which keeps its labels once they are read."""
    return SampledBenchmark.from_benchmark(page_data.benchmark(), PointSample())


def _open_if_read(recipe: Recipe) -> OpenedRecipe | None:
    """The opened checkpoints of a recipe, None if it would take long to compute their digests or those of its data."""
    if recipe.data_files.to_plain():
        return None
    opened = open_inputs(recipe, benchmark=page_data.benchmark())
    return opened if opened.unread_bytes <= listed_models.MAX_SMALL_BYTES else None


def _find_scores(run_id: str) -> Point | None:
    """The stored scores of a run on the whole choosing half, or of the sweep's point that is the same merge."""
    return find_scores_of_merge(page_data.store(), run_id, page_data.benchmark(), PointSample())


def _find_pretrained(opened: OpenedRecipe) -> Run | None:
    """The stored evaluation of a recipe's pretrained model, as the network that its file describes."""
    run = page_data.references(page_data.benchmark().digest, page_data.page_runs()).get(PRETRAINED)
    is_stated = opened.recipe.architecture or opened.recipe.activation
    return run if run and not is_stated and run.inputs == {PRETRAINED: opened.digests()[PRETRAINED]} else None


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


def cancel_other_preview(request: Request, key: str) -> None:
    """Drop the last request under ``key`` if it is another one and is not done."""
    preview_process().cancel_other(_session_key(key), request)


def _session_key(key: str) -> str:
    return f"{session_name()}/{key}"


def preview_table(preview: Preview) -> pd.DataFrame:
    """The differences, with columns that mark every row as a preview or as stored, and name its chain and reference."""
    description = {"half": preview.half, "seed": preview.seed, "against": preview.reference, "of": preview.title}
    return add_titles(preview.changes).assign(kind="stored" if preview.is_from_stored else "preview", **description)
