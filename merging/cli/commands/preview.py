"""The command ``preview``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from merging.base.text import printable
from merging.cli.call import Call
from merging.cli.exit_codes import DONE
from merging.cli.options import Command, argument, device_option, option, store_option
from merging.cli.output import encode_json, format_columns
from merging.cli.recipe_argument import find_recipe

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.study.previews.preview import Preview
    from merging.study.runs.run import Run
    from merging.study.runs.run_store import Store


@click.command(cls=Command)
@argument("recipe", help="a recipe in YAML, or the id of a stored run")
@option("--per-task", type=int, help="images per task (default: all of the choosing half)")
@option("--seed", type=int, default=0, show_default=True, help="the seed with which images are sampled")
@option("--against", default="", help="a stored run or a recipe to compare with (default: the pretrained model)")
@store_option
@device_option
@click.pass_obj
def preview(
    call: Call, recipe: str, per_task: int | None, seed: int, against: str, store: Path | None, device: str
) -> int:
    """Estimate the scores of a recipe on a sample, compared with a reference."""
    import merging
    from merging.base import settings
    from merging.study.previews.preview_samples import PreviewSample
    from merging.study.runs.run_store import Store
    from merging.tasks.pack_folders import list_libraries

    sample, run_store = (
        PreviewSample(per_task, seed),
        Store(store, libraries=list_libraries(settings.benchmark_folder(), store)),
    )
    candidate, reference = find_recipe(recipe, run_store), _read_reference(against, run_store)
    result = merging.preview(candidate, sample, reference, device=device, cancel=call.stop)
    print(
        encode_json({"preview": True, "half": result.half, **result.to_plain()})
        if call.json
        else _format_preview(result)
    )
    return DONE


def _read_reference(reference: str, store: Store) -> Run | Recipe | None:
    """The run or recipe to compare with; the weights of a stored run are used as they are."""
    run = store.find(reference) if reference and not Path(reference).exists() else None
    return run or (find_recipe(reference, store) if reference else None)


def _format_preview(preview: Preview) -> str:
    """The differences as a table, with a sentence on the models and images that are compared."""
    rows: list[tuple[str, ...]] = [("", "preview", "reference", "points [95 %]", "images")]
    for row in preview.changes.to_dict("records"):
        shares = (f"{100 * row[name]:.1f} %" for name in ("accuracy", "reference"))
        low, middle, high = (f"{100 * row[name]:+.1f}" for name in ("low", "difference", "high"))
        rows.append((printable(str(row["title"])), *shares, f"{middle} [{low}, {high}]", str(row["n"])))
    limit = preview.sample.per_task
    image_text = "all images" if limit is None else f"at most {limit} images per task"
    description = (
        f"Preview of {printable(preview.title)} against {printable(preview.reference)}: {image_text} of the "
        f"{preview.half} half, n = {preview.n:,}, seed {preview.seed}, on {preview.device}. It is not a run."
    )
    return f"{format_columns(rows)}\n{description}"
