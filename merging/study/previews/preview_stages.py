"""Answers requests for previews, stage by stage; data that previews on a benchmark share stay in memory."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import state_of
from merging.recipes.recipe import Recipe
from merging.study.previews.preview_memory import Memory
from merging.study.previews.preview_samples import PreviewSample
from merging.study.previews.previewer import Previewer
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.kinds import Request, StageAnswer, Stages
from merging.tasks.pack_folders import list_libraries

MAX_BENCHMARKS = 2  # in memory at a time
PreviewerState = tuple[tuple[int, ...], str]  # of a benchmark's files, and the device

_memory = Memory()  # of all benchmarks
_previewers: OrderedDict[Path, tuple[PreviewerState, Previewer]] = OrderedDict()  # by folder; least recently used first


def preview_stages(request: Request, context: Context) -> Stages:
    """The preview after each stage, as plain data. Raises as ``Previewer.begin``, or StoreError."""
    folder = Path(request["benchmark"])
    previewer = _make_previewer(folder, state_of(folder), context.device)
    sample = PreviewSample(request["per_task"], request["seed"])
    base = Path(request["base"]) if request["base"] else None
    work = previewer.begin(Recipe.from_yaml(request["recipe"]), sample, _find_reference(request), base, context)
    for preview in work.previews():
        if preview is None:
            yield None
        else:
            # suffices: if other sessions wait for long, this preview on fewer images may be the last one
            yield StageAnswer({"preview": preview.to_plain()}, done=preview.sample == sample, suffices=True)


def _make_previewer(folder: Path, state: tuple[int, ...], device: str) -> Previewer:
    """The previewer of a benchmark; it is reused as long as the ``state`` of the benchmark's files lasts."""
    cached = _previewers.pop(folder, None)
    if cached is None or cached[0] != (state, device):
        del cached  # before the new one takes memory
        cached = (state, device), Previewer(Benchmark.load(folder), device, memory=_memory)
    _previewers[folder] = cached
    while len(_previewers) > MAX_BENCHMARKS:
        _previewers.popitem(last=False)
    return cached[1]


def _find_reference(request: Request) -> Recipe | Run | None:
    """The reference of a request: a stored run by its id, a recipe, or None for the pretrained model."""
    if request["run"]:
        root = Path(request["store"])
        store = Store(root, libraries=list_libraries(Path(request["benchmark"]), root))
        return store.get_run(request["run"])
    return Recipe.from_yaml(request["reference"]) if request["reference"] else None
