"""What a sweep of 10,000 points costs: plan, listings, the page Sweeps and the tray, with points that nobody computed.

    python tests/bench/many_points.py                 # 100 values times 100 on the bundled benchmark
    python tests/bench/many_points.py --side 20       # 400 points, to compare with

Every point has made-up scores and is stored as a computed one is. CPU seconds count, as they vary little on a busy
machine, and the files that were opened and asked for, each of which takes a third of a millisecond on a network file
system. The target for a page that is drawn again is that of reruns.py, 250 ms.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from streamlit.testing.v1 import AppTest

from app import startup
from app.reading import page_data
from merging.base.files import atomic, disk, records
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import Axis, NamedPoint, Sweep
from merging.study.sweeps.sweep_session import SweepSession, plan_sweep, run_sweep
from merging.study.sweeps.sweep_tables import estimate_cost
from merging.tasks.context import Context
from merging.tasks.queue.job_kinds import SWEEP
from merging.tasks.queue.job_records import JobFiles, State, name_job

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
PATIENCE = 600  # seconds that a page may take on a busy machine
CALLS = ("stat", "lstat", "scandir", "listdir")  # of os, which Python does not report as it does the opening of files
counts: Counter[str] = Counter()


def watch() -> None:
    """Count opened files, and files and folders that are asked for, from now on."""
    sys.addaudithook(lambda event, _: counts.update(["open"] if event == "open" else []))
    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))


def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that counts its calls."""

    def asked(*given: Any, **named: Any) -> Any:
        counts[name] += 1
        return call(*given, **named)

    return asked


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Print what the block took."""
    counts.clear()
    started = time.process_time()
    yield
    seconds = time.process_time() - started
    print(
        f"{what:52} {seconds:8.2f} CPU s {counts['open']:8,} opened {counts['stat'] + counts['lstat']:8,} asked for "
        f"{counts['scandir'] + counts['listdir']:6,} listed",
        flush=True,
    )


def described(benchmark: Benchmark, side: int) -> Sweep:
    """A map of so many values of two parameters."""
    recipe = find_preset("task_arithmetic_lwptv").recipe(benchmark.pretrained, benchmark.experts)
    values = tuple(float(value) for value in np.linspace(0.01, 0.99, side))
    axes = (Axis("lwptv.prune_ratio", values), Axis("task_arithmetic.scaling", values))
    return Sweep(recipes=(recipe,), axes=axes, images=16, most=side * side)


def made_up(planned: Sequence[NamedPoint], session: SweepSession) -> Iterator[tuple[Point, dict[str, Any]]]:
    """A point for every name: the scores of the first, with other counts."""
    first, about = session.compute(planned[0], session.context)
    generator = np.random.default_rng(0)
    for one in planned:
        correct = generator.integers(0, first.scores["n"] + 1)
        scores = first.scores.assign(correct=correct, accuracy=correct / first.scores["n"])
        yield replace(first, name=one.name, table=scores), about


def pages(found: Sweep, late: Callable[[], None]) -> None:
    """The page of the sweep: drawn, drawn again, with another point chosen, and with one more point."""
    at = AppTest.from_file(str(MAIN), default_timeout=PATIENCE)
    at.query_params["sweep"] = found.id
    with measured("Home, for what is loaded once"):
        at.run()
    with measured("Sweeps, drawn first"):
        at.switch_page("screens/sweeps.py").run()
    picked = next(box for box in at.selectbox if str(box.key).startswith("chosen_point"))
    print(f"{len(picked.options):,} points to choose from; {[str(error.value) for error in at.exception]}")
    for _ in range(2):
        with measured("Sweeps, drawn again"):
            at.run()
    picked = next(box for box in at.selectbox if str(box.key).startswith("chosen_point"))
    with measured("Sweeps, another point is chosen"):
        picked.select_index(len(picked.options) // 2).run()
    late()
    with measured("Sweeps, one more point has arrived"):
        at.run()
    with measured("Sweeps, a required accuracy"):
        next(box for box in at.selectbox if box.label == "Subject to").select_index(1).run()
    with measured("The jobs, as the tray reads them every second"):
        page_data.job_queue().list_jobs()
    with measured("Sweeps, the form of a new one"):
        next(box for box in at.selectbox if str(box.key).startswith("sweep_picker")).select_index(0).run()


def main() -> None:
    """Print what each step took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--side", type=int, default=100, help="values of each of two parameters")
    side = parser.parse_args().side
    for module in (atomic, disk, records):
        module.sync = lambda path: None  # it takes the disk's time, not the processor's
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["MERGESCOPE_STORE"] = temporary
        startup.warm_up = lambda *_ahead: None
        startup.load_modules()
        benchmark, store = Benchmark.load(), Store(Path(temporary))
        watch()
        with measured(f"A sweep of {side * side:,} points"):
            found = described(benchmark, side)
        sweep_storage.store_sweep(found, store)
        with measured("The stored sweep is read"):
            sweep_storage.list_sweeps(store)
        with measured("Its plan"):
            planned = plan_sweep(found, benchmark)
        with measured("What to compute, if nothing is stored"):
            run_sweep(found, store, benchmark, context=Context(device="cpu", pause=lambda: True))
        with measured("All points are stored but one"):
            entries = made_up(planned, SweepSession(benchmark, found.sample, Context("cpu")))
            held = next(entries)
            for entry in entries:
                points.write_point(store, *entry)
        with measured("What to compute, if all but one is stored"):
            run_sweep(found, store, benchmark, context=Context(device="cpu", pause=lambda: True))
        with measured("The cost of what is left"):
            estimate_cost(found, store, benchmark, planned, "cpu")
        files = JobFiles(store.root / "jobs", name_job(SWEEP, found.id))
        files.create("", title="A sweep", base=Path(), kind=SWEEP, subject=found.id)
        files.update(state=State.PAUSED)
        pages(found, lambda: points.write_point(store, *held))


if __name__ == "__main__":
    main()
