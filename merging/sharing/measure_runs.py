"""Scores of stored runs by the user's program: each run is exported to a temporary folder, measured, and deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from merging.base.errors import CheckpointError, EvaluatorError, MergingError, StoreError
from merging.base.files.temporary import temporary_name
from merging.base.text import printable
from merging.models.model_references import PRETRAINED, expert_key
from merging.sharing.evaluator_program import Evaluator
from merging.sharing.export.model_export import export
from merging.study.imported_scores import checkpoint_id, find_scores, store_scores
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import QUIET, Context

MAX_FOLDER_NAME_CHARACTERS = 100  # an expert's name is cut to this length in its folder's name
EVALUATION_FOLDER = "evaluating"  # of a store: exported models, deleted after the program has read them


def measure_run(
    run: Run, store: Store, evaluator: Evaluator, context: Context = QUIET, *, replace: bool = False
) -> None:
    """Measure a run of a network other than CLIP and store its scores; ``replace`` also measures runs that have scores.

    Raises:
        EvaluatorError: the run has no stored weights, or the program fails; the run does not change.
        Cancelled: the caller cancelled; the program is stopped.
    """
    if not run.network or (find_scores(store.root, run.id) and not replace):
        return
    if not run.has_model:
        raise EvaluatorError(
            f"Run {run.id} has no stored weights that {evaluator.name} could measure. Run its recipe with --need-model."
        )
    with open_temporary_folder(store) as folder:
        try:
            export(run, folder / "model", context=context)
        except StoreError as error:
            raise MergingError(f"Run {run.id} cannot be exported, so it was not measured: {error}") from None
        store_scores(store.root, run.id, evaluator.measure(folder / "model", context))


def measure_merged_models(run: Run, store: Store, evaluator: Evaluator, context: Context = QUIET) -> list[str]:
    """Measure the models that a run merged: the pretrained one and each expert, unless they have scores.

    The program gets each as a folder named after the expert, or "pretrained". Returns a sentence for each model that
    could not be measured, as is usual for a pretrained model without heads.

    Raises:
        Cancelled: the caller cancelled; the program is stopped.
    """
    recipe, problems = run.recipe, []
    for name, reference in {PRETRAINED: recipe.pretrained, **dict(recipe.experts)}.items() if recipe else ():
        score_id = checkpoint_id(run.inputs[PRETRAINED if name == PRETRAINED else expert_key(name)])
        if find_scores(store.root, score_id):
            continue
        try:
            with open_temporary_folder(store) as parent_folder:
                folder = parent_folder / (quote(name, safe=" ")[:MAX_FOLDER_NAME_CHARACTERS].strip(" .") or "_")
                export(reference, folder, base=recipe.pretrained if recipe else None, context=context)
                store_scores(store.root, score_id, evaluator.measure(folder, context))
        except (CheckpointError, StoreError, EvaluatorError) as error:
            problems.append(f"{printable(name, 60)}: {error}")
    return problems


@contextmanager
def open_temporary_folder(store: Store) -> Iterator[Path]:
    """A folder for models that a program measures; it is removed when the block ends, also by an error.

    Raises:
        StoreError: the disk cannot be written to.
    """
    folder = store.root / EVALUATION_FOLDER / temporary_name()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written to: {error.strerror}.") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
