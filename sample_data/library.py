"""Recomputes the library of precomputed runs: every preset, the same with LwPTV in front, and what is measured of them.

All is made by the same code as everybody's, on the bundled benchmark with all eight experts, at the published scalings:
those that were chosen from a grid are in scalings.csv, which make.py writes. Weights are left out (they are remade in
seconds), and saliency that another run has, too (pages find it there); recipes, the other tables and scores stay in
runs/, measurements in measured/. Tables above 5 kB are packed, and what was learned at each step keeps the three digits
that its pictures show, coefficients at every 20th step in place of every 10th. Seconds are left out: times are there as
the ratios that method_times measures. A test finds out when they are stale.

``--keep`` takes over what is there under the same ids instead of computing everything again. What learns takes minutes
to an hour, so it is always taken over. ``--only KEY`` computes one preset and adds it to what is there; it works in the
folder "library" of your own store, where a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from merging import settings
from merging.analysis import context, registry, stored
from merging.analysis import measure as measuring
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.metrics import summarize
from merging.checkpoints.references import PRETRAINED
from merging.files.atomic import MANIFEST, seal
from merging.files.records import write_json
from merging.files.tables import PACKED, read_table, stored_table, write_table
from merging.recipes.presets import LEARNING, PRESETS, Preset, partners, preset
from merging.recipes.recipe import Recipe
from merging.runs import edit_pairs
from merging.runs.execute import execute
from merging.runs.inputs import open_inputs
from merging.runs.reference_models import references
from merging.runs.run import FACTS, PRECOMPUTED, SALIENCY, Run
from merging.runs.store import Store
from merging.sweeps import compute, points, storage
from merging.sweeps.axis import varied
from merging.sweeps.sweep import Axis, Sweep

LEARNED = (  # presets of LEARNING whose runs are computed
    "localize_and_stitch_dataless",
    "localize_and_stitch",
    "surgery",
    "surgery_tatr",
    "surgery_pretrained",
    "twin",
    "lw_adamerging_quick",
    "lw_adamerging",
    "lw_adamerging_pp",
    "lw_adamerging_lwptv",
)
# The app computes the others on demand.
AWAITED = LEARNING - set(LEARNED)
RUNS: tuple[Preset, ...] = tuple(one for one in (*PRESETS, *partners()) if one.key not in AWAITED)
MEASURED = settings.LIBRARY.parent / context.FOLDER
DRIFT = (  # presets whose feature drift is measured; the others' is on demand
    "weight_averaging",
    "task_arithmetic",
    "ties",
    "task_arithmetic_lwptv",
    "tsv_m",
    "wudi",
    "lot",
    "regmean",
    "cat",
    "tatr",
)
ABLATION = ("task_arithmetic", "lot")
PREDICTIONS = (  # the models of which it is kept what they take every image for
    PRETRAINED,
    "weight_averaging",
    "task_arithmetic",
    "ties",
    "task_arithmetic_lwptv",
    "lot",
    "drm_h",
    "cat",
    "pcb",
)
FEATURES = (PRETRAINED, "task_arithmetic", "task_arithmetic_lwptv")  # the models that the paper's maps are of
TENTHS = tuple(step / 10 for step in range(11))
LOT_SCALINGS = tuple(step / 10 for step in range(5, 21))  # the paper calls 1 to 1.5 stable and larger values worse
DENSITIES, LAMBDAS = TENTHS[1:], (0.8, 1.0, 1.2)  # of DRM's Figure 7
DRM_COMPARED = ("drm_h", "drm_v", "ties_mean")
SWEEPS: tuple[tuple[tuple[str, ...], dict[str, tuple[float, ...]], str], ...] = (  # presets, what is varied, title
    (("task_arithmetic_lwptv", "ties_lwptv"), {"lwptv.prune_ratio": TENTHS}, ""),
    (("task_arithmetic", "task_arithmetic_lwptv"), {"task_arithmetic.scaling": TENTHS}, ""),
    (("lot",), {"lot.scaling": LOT_SCALINGS}, "LOT Fig. 3b: scaling of LOT Merging"),
    *(
        ((key,), {f"{preset(key).merge}.density": DENSITIES, f"{preset(key).merge}.scaling": LAMBDAS},
         f"DRM Fig. 7: density and scaling of {preset(key).title}")
        for key in DRM_COMPARED
    ),
)  # fmt: skip
PACK_ABOVE = 5_000  # bytes of a table
COEFFICIENTS = "coefficient_steps"
HISTORY = {COEFFICIENTS: 3, "learning": 3}  # tables of steps, and the significant digits that they keep
MOMENTS = 30  # of more steps with coefficients every second one is kept
OWN = "library"  # the folder of the user's store in which ``--only`` computes
OF_EXPERTS = ("signs", "pairs")
OF_BENCHMARK = ("exemplars", "drm_ablations", "task_counts", "method_times")
MEASUREMENTS = (  # kind, and the preset (or the pretrained model) whose run it is of; none for the benchmark
    *(("drift", preset) for preset in DRIFT),
    *(("ablation", preset) for preset in ABLATION),
    *(("predictions", preset) for preset in PREDICTIONS),
    *((kind, of) for of in FEATURES for kind in ("features", "tsne")),
    *((kind, DRIFT[0]) for kind in OF_EXPERTS),
    *((kind, None) for kind in OF_BENCHMARK),
)


def main() -> None:
    """Build the library beside the old one, then swap; or add single runs to it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="compute only what is missing")
    parser.add_argument("--only", action="append", metavar="KEY", help="add the run of this preset (again for more)")
    options = parser.parse_args()
    benchmark = Benchmark.load()
    known = {one.key: one for one in (*PRESETS, *partners())}
    if missing := [key for key in options.only or () if key not in known]:
        parser.error(f"no preset is called {', '.join(missing)}; known: {', '.join(known)}")
    for key in options.only or [one.key for one in RUNS if one.key in LEARNING]:
        add(known[key], benchmark)
    if not options.only:
        rebuild(benchmark, keep=options.keep)


def rebuild(benchmark: Benchmark, *, keep: bool) -> None:
    """Build the library beside the old one, then swap; what learns is taken over."""
    with tempfile.TemporaryDirectory(dir=settings.BUNDLED) as folder:
        store = Store(Path(folder), libraries=(), dated=False)
        library = Store(Path(folder) / "none", libraries=(settings.LIBRARY,))
        old = library if keep else None
        print("Evaluating the pretrained model, the experts and the multi-task model ...", flush=True)
        runs = {PRETRAINED: references(store, benchmark)[PRETRAINED]}
        for number, preset in enumerate(RUNS):
            print(f"[{number + 1}/{len(RUNS)}] ", end="")
            run = build(preset, store, benchmark, library if preset.key in LEARNING else old)
            doubled = SALIENCY in run.tables and edit_pairs.same_saliency(run, runs.values())
            runs[preset.key] = lean(run, store) if doubled else run
        for kind, key in MEASUREMENTS:
            measure(kind, store, benchmark, old, runs[key] if key else None)
        for wanted in planned(benchmark):
            sweep(wanted, store, benchmark, old)
        for name, facts in {"runs": FACTS, context.FOLDER: stored.FACTS, points.FOLDER: points.FACTS}.items():
            finish(store.root / name, facts)
        swap(store.root / "runs", settings.LIBRARY)
        for name in (context.FOLDER, points.FOLDER, storage.FOLDER):
            swap(store.root / name, settings.BUNDLED / name)


def add(preset: Preset, benchmark: Benchmark) -> None:
    """Put one preset's run into the library, computed in a store that outlasts an interruption."""
    store = Store(settings.store_root() / OWN, libraries=(settings.LIBRARY,), dated=False)
    run = build(preset, store, benchmark, None)
    if run.provenance == PRECOMPUTED:
        return
    others = [other for other in store.runs() if other.provenance == PRECOMPUTED]
    if SALIENCY in run.tables and edit_pairs.same_saliency(run, others):
        run = lean(run, store)
    with tempfile.TemporaryDirectory(dir=settings.BUNDLED) as folder:
        shutil.copytree(run.path, Path(folder) / run.id)
        finish(Path(folder), FACTS)
        swap(Path(folder) / run.id, settings.LIBRARY / run.id)


def build(preset: Preset, store: Store, benchmark: Benchmark, old: Store | None) -> Run:
    """The run of a preset, with scores and without weights."""
    print(f"{preset.title}: ", end="", flush=True)
    started = time.monotonic()
    recipe = preset.recipe(benchmark.pretrained, benchmark.experts)
    if old is not None and (kept := old.find(open_inputs(recipe).run_id())):
        shutil.copytree(kept.path, store.root / "runs" / kept.id)
    run = execute(recipe, store, benchmark=benchmark, keep_model=False)
    assert run.scores is not None
    found = summarize(run.scores, run.experts)
    print(
        f"in-domain {found.in_domain:.1%}, out-of-domain {found.out_of_domain:.1%}, H-score {found.h_score:.1%} "
        f"({time.monotonic() - started:.1f} s)",
        flush=True,
    )
    return run


def lean(run: Run, store: Store) -> Run:
    """The run without its table of saliency, which an earlier one of the library has."""
    with store.writing(run.id, replace=True) as folder:
        shutil.copytree(run.path, folder, dirs_exist_ok=True)
        (folder / stored_table(folder, SALIENCY)).unlink()
        (folder / MANIFEST).unlink()  # a new one is written when the block ends
        facts = json.loads((folder / FACTS).read_bytes())
        del facts["tables"][SALIENCY]
        write_json(folder / FACTS, facts)
    return store.run(run.id)


def measure(key: str, store: Store, benchmark: Benchmark, old: Store | None, run: Run | None = None) -> None:
    """A measurement of a run, or of the benchmark."""
    run_id, started = run.id if run else "", time.monotonic()
    if old is not None and (kept := stored.find(key, old, benchmark, run_id)):
        shutil.copytree(kept.path, store.root / context.FOLDER / kept.path.name)
        if registry.kind(key).timed:  # it would be measured anew
            return
    print(f"Measuring {key} of {run.title if run else 'the benchmark'}: ", end="", flush=True)
    measuring.measure(key, store, benchmark, run_id)
    print(f"{time.monotonic() - started:.1f} s", flush=True)


def finish(root: Path, facts: str) -> None:
    """Leave seconds out of every entry, since they say nothing about another machine; shorten and pack its tables."""
    for path in root.glob(f"*/{facts}"):
        content = json.loads(path.read_bytes())
        content["seconds"] = {} if isinstance(content["seconds"], dict) else None
        write_json(path, content)
        for name in content.get("tables", {}).keys() & HISTORY.keys():
            shorten(path.parent, name, content["tables"][name])
        pack(path.parent)
        (path.parent / MANIFEST).unlink()
        seal(path.parent)


def shorten(folder: Path, name: str, schema: Mapping[str, str]) -> None:
    """Round a table of ``HISTORY``, and thin out coefficients; what was shortened already stays as it is."""
    place, digits = folder / stored_table(folder, name), HISTORY[name]
    table = read_table(place, schema)
    rounded = {
        column: [float(f"{value:.{digits}g}") for value in table[column]] for column in table.select_dtypes("float")
    }
    as_it_lies, table = table, table.assign(**rounded)
    if place.suffix == PACKED and table.equals(as_it_lies):
        return
    steps = sorted(set(table["step"]))
    if name == COEFFICIENTS and len(steps) > MOMENTS:
        table = table[table["step"].isin({*steps[::2], steps[-1]})]
    place.unlink()
    write_table(folder, name, table)


def pack(folder: Path) -> None:
    """Pack the tables of an entry that are larger than ``PACK_ABOVE``; equal tables give equal files."""
    for path in folder.glob("tables/*.csv"):
        content = path.read_bytes()
        if len(content) > PACK_ABOVE:
            path.with_name(path.name + PACKED).write_bytes(gzip.compress(content, 9, mtime=0))
            path.unlink()


def planned(benchmark: Benchmark) -> list[Sweep]:
    """The sweeps of the library: those of ``SWEEPS``, and the panels of DRM's Figure 7, one for each scaling."""

    def recipe(key: str) -> Recipe:
        return preset(key).recipe(benchmark.pretrained, benchmark.experts)

    def scaled(key: str, value: float) -> Recipe:
        return replace(varied(recipe(key), "scaling", value), title=preset(key).title)

    own = [
        Sweep(
            recipes=tuple(recipe(key) for key in keys),
            axes=tuple(Axis(target, values) for target, values in axes.items()),
            title=title,
        )
        for keys, axes, title in SWEEPS
    ]
    panels = [
        Sweep(
            recipes=tuple(scaled(key, value) for key in DRM_COMPARED),
            axes=(Axis("density", DENSITIES),),
            title=f"DRM Fig. 7: density of DRM-H, DRM-V and TIES at scaling {value:g}",
        )
        for value in LAMBDAS
    ]
    return [*own, *panels]


def sweep(wanted: Sweep, store: Store, benchmark: Benchmark, old: Store | None) -> None:
    """All points of a sweep."""
    started = time.monotonic()
    for name in {one.name for one in compute.plan(wanted, benchmark)} if old else ():
        if (kept := settings.BUNDLED / points.FOLDER / name).is_dir():
            shutil.copytree(kept, points.folder(store) / name, dirs_exist_ok=True)
    print(f"Sweeping {' and '.join(wanted.labels)}: ", end="", flush=True)
    storage.keep(wanted, store)
    compute.run(wanted, store, benchmark)
    print(f"{time.monotonic() - started:.1f} s", flush=True)


def swap(new: Path, place: Path) -> None:
    """Put a folder in another's place, readable for everybody: the store keeps what it writes private."""
    if place.exists():
        shutil.rmtree(place)
    new.rename(place)
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
