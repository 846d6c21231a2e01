"""What putting back costs, as ratios to one pass over its images, and what it gives on the library's runs.

    python tests/bench/put_back.py                     # the ratios, on the bundled benchmark
    python tests/bench/put_back.py --gains             # the largest gains of every merge of the library
    python tests/bench/put_back.py --gains --runs task_arithmetic,ties --store DIR --out gains.csv

Ratios are of CPU time, medians over rounds that time the pass beside each piece of work, and stand beside what the
arithmetic alone would cost: from block b of B on (B - b + 1) / B of a pass, all variants their sum. Gains are measured
as the command ``measure put_back`` does, in ``--store``, from which they are read if they are there.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pandas as pd
import torch

from merging.base import settings
from merging.base.progress import Meter
from merging.engine.evaluation.evaluate import EvaluatedModel
from merging.engine.run_inputs import RunInputs
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import PRESETS, find_preset, list_partners
from merging.study import measure
from merging.study.measurements import first_order, put_back_images
from merging.study.measurements.put_back_variants import TENSOR, PutBackTower, list_variants
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

ROUNDS, MOST = 3, 5
CPU = torch.device("cpu")


def ratios(benchmark: Benchmark, rounds: int) -> None:
    """Print measured over expected cost, in passes over the sample."""
    opened = open_inputs(find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts))
    merged, sample = (
        next(iter(opened.experts.values())),
        put_back_images.sample_images(benchmark),
    )  # any model costs the same
    tower, every = PutBackTower.load(merged, opened.pretrained, CPU), list_variants(opened.pretrained.parameters)
    batches = put_back_images.image_batches(sample, list(sample))
    blocks = tower.encoder.architecture.layers

    def whole_pass() -> None:
        with torch.inference_mode():
            for batch in batches:
                tower.encoder(batch)

    def true_map() -> None:
        for _ in tower.compute_features(every, batches, Meter(0)):
            pass

    def guess() -> None:
        part = EvaluatedModel("", merged, list(sample))
        first_order.predict_changes(
            [part], RunInputs(opened.pretrained, opened.experts, None, CPU), sample, Meter(0), Meter(0)
        )

    def from_block(block: int) -> Callable[[], None]:
        name = f"block {block}"
        one = next(variant for variant in every if variant.name == name)
        with torch.inference_mode():
            tokens = batches
            for section in range(one.first_section):
                tokens = [tower.encoder.run_section(section, x) for x in tokens]

        def run() -> None:
            encoder = tower.put_back(one.tensors)
            with torch.inference_mode():
                rest = tokens
                for section in range(one.first_section, encoder.sections):
                    rest = [encoder.run_section(section, x) for x in rest]

        return run

    whole_pass()  # the first one warms up
    print("work".ljust(26), "passes", "expected", "ratio", sep="  ", flush=True)
    rows = [(f"revert block {block}", from_block(block), (blocks - block) / blocks) for block in range(blocks)]
    expected = tower.count_work(every, 1) / tower.encoder.sections
    rows += [("first-order map", guess, 4.0), (f"whole map, {len(every)} variants", true_map, expected)]
    for label, work, cost in rows:
        measured = statistics.median(_seconds(work) / _seconds(whole_pass) for _ in range(rounds))
        print(label.ljust(26), f"{measured:6.2f}", f"{cost:8.2f}", f"{measured / cost:5.2f}", sep="  ", flush=True)


def _seconds(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def gains(benchmark: Benchmark, keys: list[str], store: Store) -> pd.DataFrame:
    """The ``MOST`` tensors of every run that gain most out of domain if they are put back, and the best block."""
    frames = []
    for number, one in enumerate(known for known in (*PRESETS, *list_partners()) if not keys or known.key in keys):
        run_id = open_inputs(one.recipe(benchmark.pretrained, benchmark.experts)).run_id()
        if store.find(run_id) is None:
            print(f"{one.key}: the library has no such run", file=sys.stderr)
            continue
        started = time.monotonic()
        table = measure.measure("put_back", store, benchmark, run_id, context=Context(device="cpu")).table("changes")
        print(f"[{number + 1}] {one.key}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        averages = table[table["group"] == "average"]
        wide = 100 * averages.pivot(index=["level", "name"], columns="over", values=["change", "low", "high"])
        by = wide["change"]["out of domain"] if "out of domain" in wide["change"] else wide["change"]["in domain"]
        single = by.xs(TENSOR, level="level", drop_level=False).nlargest(MOST)
        block = by.xs("block", level="level", drop_level=False).nlargest(1)
        rows = wide.loc[[*single.index, *block.index]].round(1)
        rows.columns = [f"{over}, {number}" for number, over in rows.columns]
        frames.append(rows.reset_index().assign(run=one.key))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def main() -> None:
    """Print the ratios or the gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gains", action="store_true", help="gains of the library's runs instead of ratios")
    parser.add_argument("--runs", default="", help="keys of presets, with commas; all if empty")
    parser.add_argument("--store", type=Path, help="where measurements are kept; a temporary folder if left out")
    parser.add_argument("--out", type=Path, help="a CSV file for the gains")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each ratio is timed")
    options = parser.parse_args()
    benchmark = Benchmark.load()
    if not options.gains:
        ratios(benchmark, options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Store(options.store or Path(folder), libraries=(settings.LIBRARY_FOLDER,))
        table = gains(benchmark, [key for key in options.runs.split(",") if key], store)
    print(table.to_string(index=False))
    if options.out is not None:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
