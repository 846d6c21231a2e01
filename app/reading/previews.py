"""The process of previews as one session asks it: on its benchmark, and with its own newest request only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app import permission, singletons
from app.permission import asks
from app.reading import data
from app.session.job_queue import session_name
from app.text import with_titles
from merging.base.modes import Act
from merging.study.previews.bench import Bench, PreviewRequest, PreviewState, Request
from merging.study.previews.samples import STAGES

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipes.recipe import Recipe
    from merging.study.previews.result import Preview
    from merging.study.runs.run import Run


@singletons.once
def bench() -> Bench:
    """The process of this server, which starts with the first request."""
    runner = data.runner().runner
    return Bench(
        runner.device,
        start=runner.spare.start_answering,
        charge=lambda asker, images: runner.charge(asker.partition("/")[0], images),
    )


def request(recipe: Recipe, reference: Run | None) -> PreviewRequest:
    """A recipe against a stored merge (None: the pretrained model), on all images, or fewer where several work."""
    return PreviewRequest(
        recipe=recipe.to_yaml(),
        benchmark=str(data.runner().folder),
        store=str(data.store().root.absolute()),
        run=reference.id if reference is not None and reference.kind == "merge" else "",
        per_task=STAGES[-1] if permission.has_others() else None,
        base=str(Path.cwd()),
    )


def state(asked: Request, key: str) -> PreviewState | None:
    """The state of a request, if it is the last one that this session made under ``key``."""
    return bench().state(_session(key), asked)


@asks(Act.PREVIEW)
def ask(asked: Request, key: str) -> None:
    """Make a request in place of the last one under ``key``. Raises ModeError in a mode without previews."""
    bench().ask(_session(key), asked)


def stop(key: str) -> None:
    """Drop the last request under ``key``."""
    bench().cancel(_session(key))


def _session(key: str) -> str:
    return f"{session_name()}/{key}"


def table(preview: Preview) -> pd.DataFrame:
    """The differences with what says, in every row, that they are a preview, and of what."""
    about = {"half": preview.half, "seed": preview.seed, "against": preview.reference, "of": preview.title}
    return with_titles(preview.changes).assign(kind="preview", **about)
