"""Answers requests for previews, stage by stage; what previews on a benchmark share stays in memory."""

from __future__ import annotations

from pathlib import Path

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import state_of
from merging.previews.memory import Memory
from merging.previews.samples import PreviewSample
from merging.previews.work import Previewer
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.runs.store import Store
from merging.tasks.context import Context
from merging.tasks.kinds import Request, StageAnswer, Stages

BENCHMARKS = 2  # in memory at a time


class PreviewStages:
    """What previews of a process share: a previewer for each benchmark, and a bound on their memory."""

    def __init__(self) -> None:
        self._previewers: dict[tuple[str, tuple[int, ...]], Previewer] = {}
        self._memory = Memory()  # one for all benchmarks

    def __call__(self, request: Request, context: Context) -> Stages:
        """The preview after each stage, as plain data. Raises as ``Previewer.begin``, or StoreError."""
        previewer = self._previewer(Path(request["benchmark"]), context.device)
        sample = PreviewSample(request["per_task"], request["seed"])
        base = Path(request["base"]) if request["base"] else None
        work = previewer.begin(Recipe.from_yaml(request["recipe"]), sample, _reference(request), base, context)
        for preview in work.previews():
            if preview is None:
                yield None
            else:
                yield StageAnswer({"preview": preview.plain()}, done=preview.sample == sample, suffices=True)

    def _previewer(self, folder: Path, device: str) -> Previewer:
        """The previewer of a benchmark, begun anew if its files have changed."""
        key = str(folder), state_of(folder)
        if key not in self._previewers:
            others = [other for other in self._previewers if other[0] != key[0]][-BENCHMARKS + 1 :]
            for other in [other for other in self._previewers if other not in others]:
                self._memory.leave(self._previewers.pop(other))
            self._previewers[key] = Previewer(Benchmark.load(folder), device, memory=self._memory)
        return self._previewers[key]


def _reference(request: Request) -> Recipe | Run | None:
    """The reference of a request: a stored run by its id, a recipe, or None for the pretrained model."""
    if request["run"]:
        store = Store(Path(request["store"]), libraries=(Path(request["benchmark"]) / "runs",))
        return store.run(request["run"])
    return Recipe.from_yaml(request["reference"]) if request["reference"] else None
