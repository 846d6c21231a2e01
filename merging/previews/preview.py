"""One preview from Python, without a process beside it."""

from __future__ import annotations

from merging.benchmarks.benchmark import Benchmark
from merging.previews.result import Preview
from merging.previews.samples import PreviewSample
from merging.previews.work import Previewer
from merging.recipes.recipe import Recipe
from merging.runs.run import Run
from merging.tasks.context import QUIET, Context


def preview(
    recipe: Recipe,
    sample: PreviewSample | int | None = None,
    reference: Recipe | Run | None = None,
    *,
    benchmark: Benchmark | None = None,
    context: Context = QUIET,
) -> Preview:
    """What a recipe would score; see ``merging.preview``."""
    chosen = sample if isinstance(sample, PreviewSample) else PreviewSample(sample)
    work = Previewer(benchmark or Benchmark.load(), context.device).begin(recipe, chosen, reference, context=context)
    while not work.done:
        work.advance(context)
    return work.result()
