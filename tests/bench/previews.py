"""What previews cost beyond their floor: ratios of CPU time in one run, on one thread, and memory.

    PYTHONPATH=. python tests/bench/previews.py [--per-task 32] [--json]

Each ratio is at most 1.3, which is what this fails on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch

from merging.engine import run as engine
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study.previews.preview_process import PreviewProcess, PreviewRequest
from merging.study.previews.preview_samples import PreviewSample, image_batches
from merging.study.previews.previewer import Previewer
from merging.study.runs.opened_recipe import open_inputs
from merging.tasks.context import Context

MOST = 1.3
TIMES = 5  # of each measurement; the least counts


def least(work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    """CPU seconds of the fastest of a few calls."""
    seconds = []
    for _ in range(TIMES):
        before()
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def previewed(previewer: Previewer, recipe: Recipe, reference: Recipe, sample: PreviewSample) -> None:
    previewer.begin(recipe, sample, reference).finish()


def put_back(recipe: Recipe, block: int) -> Recipe:
    plain = recipe.to_plain()
    plain["edits"] = [*plain["edits"], {"manual": {"rules": [{"blocks": str(block), "factor": 0}], "when": "after"}}]
    return Recipe.from_plain(plain)


def one_pass(previewer: Previewer, recipe: Recipe, sample: PreviewSample) -> Callable[[], None]:
    """The forward pass of a model over the images of a sample, and nothing else."""
    model = previewer.begin(recipe, sample).merges[0].models["merged"]
    sampled = previewer.sample_tasks(sample)
    parts = [part for stage in batches_of(sampled, sample) for part in stage]
    images = [previewer.benchmark.preprocess(part.images) for part in parts]

    def run() -> None:
        with torch.inference_mode():
            for part in images:
                model.encoder(part)

    return run


def batches_of(sampled: Any, sample: PreviewSample) -> list[list[Any]]:
    stops = [0, *(stage.per_task for stage in sample.stages())]
    pairs = itertools.pairwise(stops)
    return [list(image_batches(sampled, list(sampled), start or 0, stop, "bench")) for start, stop in pairs]


def times(benchmark: Benchmark, sample: PreviewSample) -> dict[str, float]:
    """The ratios of time."""
    base = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    opened = open_inputs(base, benchmark=benchmark)
    opened.run_id()
    merge = least(lambda: engine.run_recipe(base, opened.pretrained, opened.experts, context=Context(device="cpu")))
    warm = Previewer(benchmark, "cpu")
    whole = least(one_pass(warm, base, sample))
    layers = benchmark.pretrained_tower and benchmark.pretrained_tower.parameters
    blocks = 1 + max(parameter.block or 0 for parameter in layers or ())
    ratios = {}

    lwptv = find_preset("task_arithmetic_lwptv").recipe(benchmark.pretrained, benchmark.experts)
    merge_lwptv = least(
        lambda: engine.run_recipe(lwptv, opened.pretrained, opened.experts, context=Context(device="cpu"))
    )
    state: dict[str, Previewer] = {}

    def fresh(*known: Recipe) -> None:
        state["one"] = Previewer(benchmark, "cpu")
        for recipe in known:
            previewed(state["one"], recipe, recipe, sample)

    first = least(lambda: previewed(state["one"], lwptv, base, sample), lambda: fresh(base))
    ratios["first preview, reference known"] = first / (merge_lwptv + whole)
    cold = least(lambda: previewed(state["one"], lwptv, base, sample), fresh)
    ratios["first preview, nothing known"] = cold / (merge + merge_lwptv + 2 * whole)
    for block in range(blocks):
        changed = put_back(base, block)
        seconds = least(lambda changed=changed: previewed(state["one"], changed, base, sample), lambda: fresh(base))
        ratios[f"block {block} put back"] = seconds / (whole * (blocks - block) / blocks)
    return ratios


def memory(benchmark: Benchmark, sample: PreviewSample) -> dict[str, float]:
    """Memory of the process of previews after a request and a change, beyond the program itself, over what it keeps."""
    base = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    bench = PreviewProcess("cpu")
    asked = PreviewRequest(
        recipe=base.to_yaml(), reference=base.to_yaml(), benchmark=str(benchmark.folder), store="none", per_task=1
    )

    def resident(request: PreviewRequest) -> int:
        bench.send_request("bench", request)
        while not (state := bench.find_state("bench", request)) or not state.done:
            time.sleep(0.05)
        assert not state.error, state.error
        time.sleep(3)  # it gives freed memory back when it has nothing left to do
        return int(psutil.Process(bench.pid).memory_info().rss)

    try:
        before = resident(asked)
        changed = put_back(base, 0).to_yaml()
        after = resident(replace(asked, recipe=changed, per_task=sample.per_task))
    finally:
        bench.close()
    kept = []
    for recipe, images in ((base, 1), (put_back(base, 0), sample.per_task)):
        previewer = Previewer(benchmark, "cpu")
        previewed(previewer, recipe, base, PreviewSample(images))
        kept.append(previewer.nbytes)
    program = before - kept[0]  # with what torch loads at its first operations
    return {
        "memory beyond the program / kept": (after - program) / kept[1],
        "MB resident": after / 1e6,
        "MB of the program": program / 1e6,
        "MB kept: models, tokens, images": kept[1] / 1e6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-task", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--benchmark", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    benchmark, sample = Benchmark.load(given.benchmark), PreviewSample(given.per_task)
    ratios = {**times(benchmark, sample), **memory(benchmark, sample)}
    if given.json:
        print(json.dumps(ratios))
    else:
        print("\n".join(f"{value:8.2f}  {name}" for name, value in ratios.items()))
    return int(any(value > MOST for name, value in ratios.items() if "MB" not in name))


if __name__ == "__main__":
    sys.exit(main())
