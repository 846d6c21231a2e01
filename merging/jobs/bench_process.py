"""The bench's process: it answers previews and makes tables about single images, from models that stay in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from merging.analysis.image.neighbors import same_domain
from merging.analysis.image.studied import StudiedImage, image_of, image_of_pixels
from merging.analysis.image.tables import ImageTables
from merging.analysis.image.towers import Towers
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import state_of
from merging.checkpoints.checkpoint import Checkpoint, MappingCheckpoint
from merging.engine.outputs import MERGED
from merging.errors import MergingError, TaskError
from merging.jobs.bench import IMAGE, TableName
from merging.previews.models import merged
from merging.previews.moments import KeptMoments, refuse_learning
from merging.previews.worker import Worker
from merging.recipes.recipe import Recipe
from merging.runs.inputs import open_inputs
from merging.runs.store import Store
from merging.tasks.context import QUIET, Context
from merging.text import first_few

DRAFT = "draft"  # the key of the model of a recipe that is not stored
ERROR = "error"  # the only column of a table that cannot be made
DIGITS = 12
DRAFTS = 3  # models of drafts in memory, so that sessions that take turns do not push out each other's


@dataclass
class ImageWork:
    """A request for tables about an image; each stage makes one of them."""

    made: ImageTables
    image: StudiedImage
    names: Sequence[TableName]
    models: Mapping[str, str]  # keys of the request that have another one among the towers
    _next: int = 0
    each_stage_answers: ClassVar[bool] = False
    _new: list[tuple[TableName, pd.DataFrame]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether every table was made."""
        return self._next >= len(self.names)

    def advance(self, context: Context = QUIET) -> None:
        """Make the next table; one that cannot be made says why. Raises Cancelled if asked to stop."""
        if self.done:
            return
        name, towers = self.names[self._next], self.made.towers
        towers.context = context.on(towers.context.device)
        self._next += 1
        try:
            model, other = (self.models.get(key, key) for key in (name.model, name.other))
            table = self.made.towers.in_room(lambda: self._table(name.table, model, other))
        except MergingError as error:
            table = pd.DataFrame({ERROR: [str(error)]})
        back = {own: key for key, own in self.models.items()}
        columns = [column for column in ("model", "other", "reference", "donor") if column in table]
        self._new.append((name, table.assign(**{column: table[column].replace(back) for column in columns})))

    def slice(self, context: Context = QUIET) -> bool:
        """The same; a table is a stage."""
        self.advance(context)
        return True

    def answer(self) -> dict[str, Any]:
        """The tables since the last answer, by columns."""
        new, self._new = self._new, []
        return {"tables": [(name, {key: table[key].tolist() for key in table}) for name, table in new]}

    def _table(self, name: str, model: str, other: str) -> pd.DataFrame:
        made, image = self.made, self.image
        calls: Mapping[str, Callable[[], pd.DataFrame]] = {
            "lens": lambda: made.lens(image, model),
            "lens_by_pretrained": lambda: made.lens(image, model, by_pretrained=True),
            "accuracy": lambda: made.accuracy(image, model, other),
            "attention": lambda: _part(made.attention(image, model), other),
            "attention_change": lambda: made.attention_change(image, model, other),
            "drift": lambda: made.drift(image, model, other, scaled=False),
            "drift_scaled": lambda: made.drift(image, model, other),
            "first_past": lambda: pd.DataFrame([made.first_past(image, model, other)]),
            "restore": lambda: made.restore(image, model, other),
            "restore_tokens": lambda: made.restore(image, model, other, tokens=True),
            "occlude": lambda: made.occlude(image, model, other),
            "neighbors": lambda: made.neighbors(image, model, self._near()),
            "overlap": lambda: made.overlap(image, model, other, self._near()),
            "summary": lambda: made.summary(image, model, other),
            "says": lambda: pd.DataFrame({"sentence": [made.sentence(image, model, other, restored=False)]}),
            "sentence": lambda: pd.DataFrame({"sentence": [made.sentence(image, model, other)]}),
        }
        if name not in calls:
            raise TaskError(f"There is no table {name!r} about an image; known are {first_few(calls, len(calls))}.")
        return calls[name]()

    def _near(self) -> list[str]:
        """The data sets among whose images neighbors are sought: those of the image's domain."""
        benchmark = self.made.towers.benchmark
        return same_domain(benchmark, self.image.task.key, list(benchmark.experts))


def _part(table: pd.DataFrame, part: str) -> pd.DataFrame:
    """The rows of attention of one block (its number), or of one view ("head 0", "rollout" ...) in all blocks."""
    rows = table["block"] == int(part) if part.isdecimal() else table["view"] == part
    return table[rows].reset_index(drop=True)


@dataclass
class ImageBench:
    """What is kept for requests about images: the tables, passes and towers of the benchmark that was used last."""

    device: str
    _key: tuple[object, ...] = ()
    _made: ImageTables | None = None
    _drafts: dict[str, tuple[str, Checkpoint]] = field(default_factory=dict)  # the last ones

    def begin(self, request: Mapping[str, Any], context: Context) -> ImageWork:
        """The work of a request; its draft is merged if that is not in memory.

        Raises:
            TaskError: there is no such image or data set.
            MergingError: the draft cannot be merged.
            Cancelled: asked to stop.
        """
        made = self._tables(Path(request["benchmark"]), Path(request["store"]))
        benchmark = made.towers.benchmark
        if request["pixels"]:
            size = benchmark.image_size
            pixels = np.frombuffer(bytearray(base64.b64decode(request["pixels"])), np.uint8)
            if pixels.size != size * size * 3:
                raise TaskError(f"The picture was not read for this benchmark, whose images are {size} pixels wide.")
            image = image_of_pixels(benchmark, pixels.reshape(size, size, 3), request["head"])
        else:
            image = image_of(benchmark, request["image"], request["head"])
        names = [TableName(*name) for name in request["tables"]]
        drafts = {DRAFT: self._draft(request, image.task.key, benchmark, context)} if request["draft"] else {}
        return ImageWork(made, image, names, drafts)

    def _tables(self, folder: Path, store: Path) -> ImageTables:
        key = folder, state_of(folder), store
        if self._made is None or key != self._key:
            self._drafts.clear()
            runs = Store(store, libraries=(folder / "runs",))
            towers = Towers(runs, Benchmark.load(folder), QUIET.on(self.device), drafts=self._drafts)
            self._key, self._made = key, ImageTables(towers)
        return self._made

    def _draft(self, request: Mapping[str, Any], task: str, benchmark: Benchmark, context: Context) -> str:
        """The key among the towers of a draft's model for a data set."""
        key = f"{DRAFT}:{hashlib.sha256((request['draft'] + task).encode()).hexdigest()[:DIGITS]}"
        if key not in self._drafts:
            recipe = Recipe.from_yaml(request["draft"])
            opened = open_inputs(recipe, Path(request["base"]) if request["base"] else None, benchmark)
            refuse_learning(opened)
            learns = recipe.exemplars is not None and recipe.needs
            states = merged(
                opened,
                context.on(self.device),
                lambda: KeptMoments(opened, benchmark, self.device) if learns else None,
            )
            if MERGED not in states and task not in states:
                raise TaskError(f"The draft has one model per expert, and none is of {task}.")
            checkpoint = MappingCheckpoint(states.get(MERGED) or states[task], MERGED)
            checkpoint.metadata = dict(opened.pretrained.metadata)
            while len(self._drafts) >= DRAFTS:
                del self._drafts[next(iter(self._drafts))]
            self._drafts[key] = recipe.title or recipe.text(), checkpoint
        self._drafts[key] = self._drafts.pop(key)  # the one that was not asked for longest goes first
        return key


def main(device: str, idle: float, nice: int) -> None:
    """Answer what comes in on stdin; end with it, or after ``idle`` seconds without a request."""
    os.nice(nice)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not look like an answer

    def answer(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    worker = Worker(answer, device, {IMAGE: ImageBench(device).begin})

    def read() -> None:
        worker.take(sys.stdin)
        os._exit(0)  # the server is gone or wants this process to end

    threading.Thread(target=read, daemon=True).start()
    worker.run(idle)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
