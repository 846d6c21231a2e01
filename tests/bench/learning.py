"""What presets that learn reach on the bundled benchmark: learned on images held out, and by the papers' protocol.

    python tests/bench/learning.py                                  # the table of what is computed
    python tests/bench/learning.py --compute --only surgery,twin    # compute what is missing, and the table
    python tests/bench/learning.py --compute --split reporting      # by the papers' protocol, marked with a dagger

Every run is computed in a process of its own, on the CPU, in ``--store``; one that is interrupted goes on there with
the next call. Seconds are CPU seconds of that process and memory is its peak, both noted in ``costs.jsonl`` of the
store. Accuracies are averages over data sets on the reporting half, in percent.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from merging.base import settings
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.metrics import ADAPTS_ON_TEST, summarize
from merging.recipes.presets import LEARNING, PRESETS, find_preset
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

CHOOSING, REPORTING = SPLITS
COSTS = "costs.jsonl"
KEYS = tuple(one.key for one in PRESETS if one.key in LEARNING)


def recipe_of(key: str, split: str, benchmark: Benchmark) -> Recipe:
    """A preset that learns on a split; one that learns on training images is the same for both."""
    recipe = find_preset(key).recipe(benchmark.pretrained, benchmark.experts)
    return recipe if recipe.test_data is None else replace(recipe, test_data=replace(recipe.test_data, split=split))


def compute(key: str, split: str, store: Store, benchmark: Benchmark) -> None:
    """One run in this process; its cost is noted if it was computed now."""
    recipe = recipe_of(key, split, benchmark)
    run_id, started = open_inputs(recipe).run_id(), time.process_time()
    if store.find(run_id) is not None:
        return
    part = store.learning_file(run_id).exists()
    execute(recipe, store, benchmark=benchmark, keep_model=False, context=Context(device="cpu"))
    seconds, peak = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    note = {"run": run_id, "key": key, "split": split, "cpu_seconds": round(seconds, 1), "peak_mib": round(peak)}
    with (store.root / COSTS).open("a") as file:
        file.write(json.dumps({**note, "resumed": part}) + "\n")


def costs(store: Store) -> dict[str, dict[str, Any]]:
    """The cost of every run that was computed here, by run id."""
    path = store.root / COSTS
    lines = path.read_text().splitlines() if path.exists() else []
    return {note["run"]: note for note in map(json.loads, lines)}


def cells(run: Run | None, cost: dict[str, Any]) -> list[str]:
    """In domain, out of domain, H-score, CPU seconds and MiB; dashes for what is not there."""
    if run is None or run.scores is None:
        return ["-"] * 5
    found = summarize(run.scores, run.experts)
    mark = "†" if run.adapted_on == REPORTING else ""
    shown = [f"{100 * value:.1f}{mark}" for value in (found.in_domain, found.out_of_domain, found.h_score)]
    seconds = f"{cost['cpu_seconds']:.0f}{'+' if cost['resumed'] else ''}" if cost else "-"
    return [*shown, seconds, f"{cost['peak_mib']}" if cost else "-"]


def show(keys: Iterable[str], store: Store, benchmark: Benchmark) -> None:
    """Print a row for each preset, with both protocols."""
    known, counted, rows = costs(store), set(), []
    for key in keys:
        row = [find_preset(key).title]
        for split in (CHOOSING, REPORTING):
            recipe = recipe_of(key, split, benchmark)
            learns_on_both = split == CHOOSING or recipe.test_data is not None
            run = store.find(open_inputs(recipe).run_id()) if learns_on_both else None
            row += cells(run, known.get(run.id, {}) if run else {})
            if run is not None and run.scores is not None:
                found = summarize(run.scores, run.experts)
                seed = "nothing drawn" if run.seed is None else f"seed {run.seed}"
                counted.add(f"n = {found.n_in} in and {found.n_out} out of domain, {seed}, {run.device}")
        rows.append(row)
    part = ["in", "out", "H", "CPU s", "MiB"]
    widths = [max(len(row[0]) for row in rows), *[7] * 10]
    for row in (["", "held out", *[""] * 4, "papers' protocol", *[""] * 4], ["preset", *part, *part], *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(*sorted(counted), ADAPTS_ON_TEST, "A plus: seconds since the last interruption alone.", sep="\n")


def main() -> None:
    """Compute what is missing if that is called for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute", action="store_true", help="compute what is missing first")
    parser.add_argument("--only", default="", help="keys of presets, with commas; all that learn if empty")
    parser.add_argument("--split", choices=(CHOOSING, REPORTING), default=CHOOSING, help="what is learned on")
    parser.add_argument("--store", type=Path, default=settings.store_root() / "library", help="where runs are kept")
    parser.add_argument("--in-process", action="store_true", help="compute in this process, print nothing")
    options = parser.parse_args()
    keys = [key for key in options.only.split(",") if key] or list(KEYS)
    benchmark, store = Benchmark.load(), Store(options.store, libraries=(settings.LIBRARY_FOLDER,), dated=False)
    if options.in_process:
        for key in keys:
            compute(key, options.split, store, benchmark)
        return
    for key in keys if options.compute else ():
        started, again = time.monotonic(), ["--in-process", "--only", key, "--split", options.split]
        done = subprocess.run([sys.executable, __file__, *again, "--store", str(options.store)], check=False)
        state = f"{time.monotonic() - started:.0f} s" if done.returncode == 0 else f"failed, {done.returncode}"
        print(f"{key}: {state}", file=sys.stderr, flush=True)
    show(keys, store, benchmark)


if __name__ == "__main__":
    main()
