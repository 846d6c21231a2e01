"""Answers requests for tables about an image, table by table; passes and towers stay in memory between requests."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from merging.base.errors import MergingError, TaskError
from merging.base.text import first_few
from merging.engine.outputs import MERGED
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import state_of
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import Recipe
from merging.study.one_image.image_tables import ImageTables
from merging.study.one_image.named_towers import Towers
from merging.study.one_image.nearest_images import list_same_domain
from merging.study.one_image.studied_image import StudiedImage, find_image, image_from_pixels
from merging.study.previews.models_in_memory import merge_in_memory
from merging.study.previews.moments_in_memory import MomentsInMemory, refuse_learning
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import Request, StageAnswer, Stages
from merging.tasks.pack_folders import list_libraries

DRAFT_KEY = "draft"  # the key of the model of a recipe that is not stored
ERROR_COLUMN = "error"  # the only column of a table that cannot be made
MODEL_COLUMNS = ("model", "other", "reference", "donor")  # columns that hold keys of models
KEY_DIGITS = 12
MAX_DRAFTS = 3  # models of drafts in memory: more than one, since sessions take turns


def image_stages(request: Request, context: Context) -> Stages:
    """Each table of a request by columns, with its name; the answer with one table is a stage.

    A table that cannot be made has only the column "error". The draft of a request is merged if it is not in memory.

    Raises:
        TaskError: there is no such image or data set.
        MergingError: the draft cannot be merged.
        Cancelled: the user cancelled.
    """
    folder = Path(request["benchmark"])
    tables = open_tables(folder, state_of(folder), Path(request["store"]), context.device)
    image = _find_image(request, tables.towers.benchmark)
    draft = _merge_draft(request, image.task.key, tables.towers, context) if request["draft"] else DRAFT_KEY
    for number, (name, *model_keys) in enumerate(request["tables"], 1):
        tables.towers.context = context.on_device(tables.towers.context.device)
        model, other_model = (draft if key == DRAFT_KEY else key for key in model_keys)
        try:
            table = tables.towers.retry_on_oom(lambda: _make_table(tables, image, name, model, other_model))  # noqa: B023
        except MergingError as error:
            table = pd.DataFrame({ERROR_COLUMN: [str(error)]})
        columns = {key: table[key].replace(draft, DRAFT_KEY) if key in MODEL_COLUMNS else table[key] for key in table}
        values_by_column = {key: values.tolist() for key, values in columns.items()}
        yield StageAnswer(
            {"table": (name, *model_keys), "columns": values_by_column}, done=number == len(request["tables"])
        )


@lru_cache(maxsize=1)
def open_tables(folder: Path, state: tuple[int, ...], store: Path, device: str) -> ImageTables:
    """The tables, passes and towers that requests on a benchmark share as long as the ``state`` of its files lasts."""
    return ImageTables(
        Towers(Store(store, libraries=list_libraries(folder, store)), Benchmark.load(folder), QUIET.on_device(device))
    )


def _merge_draft(request: Request, task: str, towers: Towers, context: Context) -> str:
    """The key, among the towers, of the draft's model for a data set; the last ``MAX_DRAFTS`` models stay in memory."""
    key = f"{DRAFT_KEY}:{hashlib.sha256((request['draft'] + task).encode()).hexdigest()[:KEY_DIGITS]}"
    if key not in towers.drafts:
        recipe = Recipe.from_yaml(request["draft"])
        opened = open_inputs(recipe, Path(request["base"]) if request["base"] else None, towers.benchmark)
        refuse_learning(opened)
        uses_exemplars = recipe.exemplars is not None and recipe.needs
        states = merge_in_memory(
            opened,
            context,
            lambda: MomentsInMemory(opened, towers.benchmark, context.device) if uses_exemplars else None,
        )
        if MERGED not in states and task not in states:
            raise TaskError(f"The draft has one model per expert, and none is of {task}.")
        checkpoint = MappingCheckpoint(states.get(MERGED) or states[task], MERGED)
        checkpoint.metadata = dict(opened.pretrained.metadata)
        while len(towers.drafts) >= MAX_DRAFTS:
            del towers.drafts[next(iter(towers.drafts))]
        towers.drafts[key] = recipe.title or recipe.text(), checkpoint
    towers.drafts[key] = towers.drafts.pop(key)  # the least recently used draft comes first
    return key


def _find_image(request: Request, benchmark: Benchmark) -> StudiedImage:
    """The image of a request. Raises TaskError if there is none."""
    if not request["pixels"]:
        return find_image(benchmark, request["image"], request["head"])
    size = benchmark.image_size
    pixels = np.frombuffer(bytearray(base64.b64decode(request["pixels"])), np.uint8)
    if pixels.size != size * size * 3:
        raise TaskError(f"The picture was not read for this benchmark, whose images are {size} pixels wide.")
    return image_from_pixels(benchmark, pixels.reshape(size, size, 3), request["head"])


def _make_table(tables: ImageTables, image: StudiedImage, name: str, model: str, other_model: str) -> pd.DataFrame:
    """A table by its name. Raises MergingError if it cannot be made."""
    benchmark = tables.towers.benchmark

    def neighbor_data_sets() -> list[str]:
        """The data sets whose images are searched for neighbors: those of the image's domain."""
        return list_same_domain(benchmark, image.task.key, list(benchmark.experts))

    calls: Mapping[str, Callable[[], pd.DataFrame]] = {
        "lens": lambda: tables.lens(image, model),
        "lens_by_pretrained": lambda: tables.lens(image, model, by_pretrained=True),
        "accuracy": lambda: tables.accuracy(image, model, other_model),
        # For this table the second key of the request is a block's number or an attention map, not a model.
        "attention": lambda: _select_rows(tables.attention(image, model), other_model),
        "attention_change": lambda: tables.attention_change(image, model, other_model),
        "drift": lambda: tables.drift(image, model, other_model, scaled=False),
        "drift_scaled": lambda: tables.drift(image, model, other_model),
        "first_unusual_depths": lambda: pd.DataFrame([tables.find_first_unusual_depths(image, model, other_model)]),
        "restore": lambda: tables.restore(image, model, other_model),
        "restore_tokens": lambda: tables.restore(image, model, other_model, tokens=True),
        "occlude": lambda: tables.occlude(image, model, other_model),
        "neighbors": lambda: tables.neighbors(image, model, neighbor_data_sets()),
        "overlap": lambda: tables.overlap(image, model, other_model, neighbor_data_sets()),
        "summary": lambda: tables.summary(image, model, other_model),
        "quick_summary": lambda: pd.DataFrame(
            {"sentence": [tables.sentence(image, model, other_model, restored=False)]}
        ),
        "full_summary": lambda: pd.DataFrame({"sentence": [tables.sentence(image, model, other_model)]}),
    }
    if name not in calls:
        raise TaskError(f"There is no table {name!r} about an image. Known: {first_few(calls, len(calls))}.")
    return calls[name]()


def _select_rows(table: pd.DataFrame, block_or_view: str) -> pd.DataFrame:
    """The rows of one block (by its number), or of one view ("head 0", "rollout" ...) in all blocks."""
    is_selected = table["block"] == int(block_or_view) if block_or_view.isdecimal() else table["view"] == block_or_view
    return table[is_selected].reset_index(drop=True)
