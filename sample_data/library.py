"""Recomputes the library of precomputed runs: every preset, the same with LwPTV in front, and what is measured of them.

All is made by the same code as everybody's, on the bundled benchmark with all eight experts, at the published scalings:
those that were chosen from a grid are in scalings.csv, which make.py writes. Weights are left out (they are remade in
seconds), and saliency that another run has, too (pages find it there); recipes, the other tables and scores stay in
runs/, measurements in measured/. Tables above 5 kB are packed, and what was learned at each step keeps the three digits
that its pictures show, coefficients at every 40th step in place of every 10th, losses at 250 steps. Seconds are left
out: times are there as the ratios that method_times measures. A test finds out when they are stale.

``--keep`` takes over what is there under the same ids instead of computing everything again. What learns takes minutes
to an hour, so it is always taken over. ``--only KEY`` computes one preset and adds it to what is there, with what is
measured of it; it works in the folder "library" of your own store, where a run that was interrupted goes on.
``--again`` computes it even if it is there. ``--from STORE`` computes no run: of the presets that learn and are not in
the library, or of those of ``--only``, it takes the runs that are finished in that store. learned.txt lists which of
these presets the library has; the app computes the others on demand.

``--subsets`` computes only the subsets of experts that are missing, for the page Partners.

``--team gentle`` rebuilds the library of the second team, in gentle/: fewer runs, none that learns.

``--workers``, or MERGESCOPE_WORKERS, says who computes, as for the commands: whole runs and measurements, trials and
points of sweeps. What learns is added one after the other, and what is timed is measured here, by itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":
    # Before numpy is loaded: sums with wider vectors round otherwise, and t-SNE turns the last bit into another map.
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import summarize
from merging.models.model_references import PRETRAINED
from merging.recipes.presets import LEARNING, PRESETS, Preset, find_preset, list_partners
from merging.recipes.recipe import Recipe
from merging.study import measure as measuring
from merging.study.analysis import measurement_registry, measurement_store, measurement_subject
from merging.study.partners import packed_subsets
from merging.study.runs import edit_pairs
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.reference_models import find_references
from merging.study.runs.run import FACTS, PRECOMPUTED, SALIENCY, Run, join_run_ids
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_session, sweep_storage
from merging.study.sweeps.sweep import DEFAULT_IMAGES, Axis, Sweep
from merging.study.sweeps.sweep_target import vary_recipe
from merging.tasks.context import Context
from merging.tasks.workers.pools import open_pool
from merging.tasks.workers.workers import Workers
from sample_data.build import library_entries, on_workers, subset_entries

LEARNED_LIST = "learned.txt"  # the presets of LEARNING whose runs are computed, one a line
LEARNED = tuple(Path(__file__).with_name(LEARNED_LIST).read_text("utf-8").split())
AWAITED_PRESETS = LEARNING - set(LEARNED)
RELEARNED_PRESETS = {
    "wemoe",
    "e_wemoe",
    "adamerging_surgery",
}  # whose modules would take long to learn again to be measured
RUNS: tuple[Preset, ...] = tuple(one for one in (*PRESETS, *list_partners()) if one.key not in AWAITED_PRESETS)
MEASURED = settings.LIBRARY_FOLDER.parent / measurement_subject.FOLDER
DRIFT = (  # presets whose drift and accuracy on corrupted images are measured; the others' are on demand
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
PUT_BACK = ("task_arithmetic",)  # a lesson reads the map of what putting its weights back gives
# The best-known merges, of which answers by depth are measured.
DEPTHS = ("task_arithmetic", "ties", "dare_ties", "task_arithmetic_lwptv", "drm_h")
FEATURES = (PRETRAINED, "task_arithmetic", "task_arithmetic_lwptv")  # the models that the paper's maps are of
JOINT_MAPS = (  # of models together
    ("joint_tsne", FEATURES), ("joint_tsne_in_domain", FEATURES), ("cka", ("pretrained", "task_arithmetic_lwptv")),
)  # fmt: skip
MERGE_PATHS = ("task_arithmetic",)  # the merges whose way from the pretrained model is on a map
TENTH_STEPS = tuple(step / 10 for step in range(11))
GRID_RATIOS, GRID_SCALINGS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9), (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
# Answers Home's sliders and previews at once, so its points have all images, as the runs that they are compared with.
GRID = (("task_arithmetic_lwptv",), {"lwptv.prune_ratio": GRID_RATIOS, "task_arithmetic.scaling": GRID_SCALINGS}, "")
LOT_SCALINGS = tuple(step / 10 for step in range(5, 21))  # the paper calls 1 to 1.5 stable and larger values worse
DENSITIES, LAMBDAS = TENTH_STEPS[1:], (0.8, 1.0, 1.2)  # of DRM's Figure 7
DRM_COMPARED = ("drm_h", "drm_v", "ties_mean")
SweptPresets = tuple[tuple[str, ...], dict[str, tuple[float, ...]], str]  # presets, what is varied, title
SWEEPS: tuple[SweptPresets, ...] = (
    (("task_arithmetic_lwptv", "ties_lwptv"), {"lwptv.prune_ratio": TENTH_STEPS}, ""),
    (("task_arithmetic", "task_arithmetic_lwptv"), {"task_arithmetic.scaling": TENTH_STEPS}, ""),
    GRID,
    (("lot",), {"lot.scaling": LOT_SCALINGS}, "LOT Fig. 3b: scaling of LOT Merging"),
    *(
        ((key,), {f"{find_preset(key).merge}.density": DENSITIES, f"{find_preset(key).merge}.scaling": LAMBDAS},
         f"DRM Fig. 7: density and scaling of {find_preset(key).title}")
        for key in DRM_COMPARED
    ),
)  # fmt: skip
FACTS_FILES = {  # folder of the library -> the file of facts that its entries have, if any
    "runs": FACTS,
    measurement_subject.FOLDER: measurement_store.FACTS,
    points.FOLDER: points.FACTS,
    packed_subsets.FOLDER: packed_subsets.FACTS,
    sweep_storage.FOLDER: "",
}
SUBSETS_OF = ("task_arithmetic",)  # presets that are merged with every subset of the first team
OWN_STORE = "library"  # the folder of the user's store in which ``--only`` computes
EXPERT_MEASUREMENTS = ("signs", "pairs", "model_map", "robustness_references")
BENCHMARK_MEASUREMENTS = ("exemplars", "drm_ablations", "task_counts", "method_times")


def list_learned_measurements(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What is measured of presets that learn: the kinds and their presets."""
    for one in (each for each in PRESETS if each.key in set(keys)):
        if one.merge == "adamerging":
            yield "along_steps", one.key
        if one.adapt is not None and one.key not in RELEARNED_PRESETS:
            yield "modules", one.key


MEASUREMENTS = (  # kind, and the preset (or the pretrained model) whose run it is of; none for the benchmark
    *(("drift", preset) for preset in DRIFT),
    *(("ablation", preset) for preset in ABLATION),
    *(("depths", preset) for preset in DEPTHS),
    *((kind, of) for of in FEATURES for kind in ("features", "tsne")),
    *(("features_in_domain", of) for of in FEATURES),
    *(("merge_path", preset) for preset in MERGE_PATHS),
    *((kind, of) for of in PUT_BACK for kind in ("put_back", "first_order")),
    *((kind, DRIFT[0]) for kind in EXPERT_MEASUREMENTS),
    *(("robustness", preset) for preset in DRIFT),
    ("spectra", DRIFT[0]),
    *((kind, None) for kind in BENCHMARK_MEASUREMENTS),
    *list_learned_measurements(LEARNED),
)


GENTLE = "gentle"
GENTLE_RUNS = (  # what claims about merges that do not learn compare, and one of each other method
    "weight_averaging", "task_arithmetic", "ties", "ties_mean", "consensus", "pcb", "model_stock", "emr", "drm_h",
    "tsv_m", "iso_c", "wudi", "task_arithmetic_dare", "dare_ties", "task_arithmetic_lwptv", "ties_lwptv", "pcb_lwptv",
    "lot", "regmean", "fisher", "cat", "tatr", "ties_tatr", "breadcrumbs", "ties_cat",
    "task_arithmetic_lwptv_own_masks", "task_arithmetic_mean_abs_shared", "task_arithmetic_pwptv", "random_mask",
    "lot_lwptv", "drm_h_lwptv",
)  # fmt: skip
GENTLE_MEASUREMENTS = (
    ("drift", "task_arithmetic"), ("drift", "lot"), ("drift", "ties"), ("drift", "tsv_m"), ("ablation", "lot"),
    *(("features", of) for of in FEATURES), ("tsne", "task_arithmetic"), ("signs", DRIFT[0]), ("pairs", DRIFT[0]),
    ("exemplars", None), ("drm_ablations", None), ("task_counts", None),
)  # fmt: skip
GENTLE_SWEEPS = tuple((keys, axes, title) for keys, axes, title in SWEEPS if len(axes) == 1)


class Plan(NamedTuple):
    """What the library of a team of experts holds, and the benchmark's folder that it is in."""

    folder: Path
    runs: Sequence[Preset]
    measurements: Sequence[tuple[str, str | None]]
    sweeps: Sequence[Sweep]
    subsets: Sequence[str]
    joint_maps: Sequence[tuple[str, Sequence[str]]]


def plan_library(benchmark: Benchmark) -> Plan:
    """The plan of a bundled benchmark's library."""
    if benchmark.folder == settings.BUNDLED_TEAMS[GENTLE]:
        runs = [one for one in RUNS if one.key in GENTLE_RUNS]
        sweeps = plan_sweeps(benchmark, GENTLE_SWEEPS, (1.0,))
        return Plan(benchmark.folder, runs, GENTLE_MEASUREMENTS, sweeps, (), ())
    sweeps = plan_sweeps(benchmark, SWEEPS, LAMBDAS)
    return Plan(settings.BUNDLED_FOLDER, RUNS, MEASUREMENTS, sweeps, SUBSETS_OF, JOINT_MAPS)


def main() -> None:
    """Build the library beside the old one, then swap; or add single runs to it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="compute only what is missing")
    parser.add_argument("--only", action="append", metavar="KEY", help="add the run of this preset (again for more)")
    parser.add_argument("--again", action="store_true", help="with --only: compute it even if it is there")
    parser.add_argument("--from", dest="place", type=Path, metavar="STORE", help="take finished runs that learned")
    parser.add_argument(
        "--workers", default=settings.workers_setting(), metavar="SPEC", help="who computes (see docs/cluster.md)"
    )
    parser.add_argument("--team", choices=settings.BUNDLED_TEAMS, default="", help="rebuild the library of this team")
    parser.add_argument("--subsets", action="store_true", help="compute only the subsets of experts that are missing")
    options = parser.parse_args()
    benchmark = Benchmark.load(settings.BUNDLED_TEAMS[options.team])
    if options.team and (options.only or options.place):
        parser.error("The library of a team has no runs that learn; leave --only and --from out.")
    known = {one.key: one for one in (*PRESETS, *list_partners())}
    if missing := [key for key in options.only or () if key not in known]:
        parser.error(f"no preset is called {', '.join(missing)}; known: {', '.join(known)}")
    if options.place is not None:
        if not (options.place / "runs").is_dir():
            parser.error(f"{options.place} is no store: it has no folder runs")
        keys = options.only or [one.key for one in PRESETS if one.key in AWAITED_PRESETS]
        came = copy_finished_runs(
            [known[key] for key in keys], Store(options.place, libraries=(), dated=False), benchmark
        )
        sys.exit(0 if came == keys or not options.only else 1)
    plan = plan_library(benchmark)
    if options.subsets:
        plan = plan._replace(runs=(), measurements=(), sweeps=(), joint_maps=())
    learning = [] if options.team or options.subsets else [one.key for one in RUNS if one.key in LEARNING]
    for key in options.only or learning:
        add(known[key], benchmark, again=options.again and bool(options.only))
    if not options.only:
        with open_pool(options.workers, on_workers.print_warning) as workers:
            rebuild_library(benchmark, plan, keep=options.keep or options.subsets, workers=workers)


def rebuild_library(benchmark: Benchmark, plan: Plan, *, keep: bool, workers: Workers | None = None) -> None:
    """Build what is planned of the library beside the old one, then swap; what learns is taken over."""
    with tempfile.TemporaryDirectory(dir=plan.folder) as folder:
        store = Store(Path(folder) / "new", libraries=(), dated=False)
        library = Store(Path(folder) / "none", libraries=(plan.folder / "runs",))
        old = library if keep else None
        runs: dict[str, Run] = {}
        if plan.runs:
            print("Evaluating the pretrained model, the experts and the multi-task model ...", flush=True)
            runs[PRETRAINED] = find_references(store, benchmark)[PRETRAINED]
        for one in plan.runs:
            take_over(one, store, benchmark, library if one.key in LEARNING else old)
        if workers is not None:
            on_workers.compute_runs(
                [one.recipe(benchmark.pretrained, benchmark.experts) for one in plan.runs], store, benchmark, workers
            )
        for number, preset in enumerate(plan.runs):
            print(f"[{number + 1}/{len(plan.runs)}] ", end="")
            run = build(preset, store, benchmark)
            doubled = SALIENCY in run.tables and edit_pairs.find_same_saliency(run, runs.values())
            runs[preset.key] = library_entries.without_saliency(run, store) if doubled else run
        measured = [(kind, runs[key] if key else None) for kind, key in plan.measurements]
        timed = {
            kind for kind, run in measured if take_over_measurement(kind, store, benchmark, old, run.id if run else "")
        }
        if workers is not None:
            on_workers.compute_measurements(measured, store, benchmark, workers)
        for kind, of in measured:
            if kind not in timed:
                measure(kind, store, benchmark, of)
        for kind, keys in plan.joint_maps:
            subject = join_run_ids(runs[key].id for key in keys)
            take_over_measurement(kind, store, benchmark, old, subject)
            measuring.measure(kind, store, benchmark, subject)
        for wanted in plan.sweeps:
            compute_sweep(wanted, store, benchmark, plan.folder if keep else None, workers)
        for key in plan.subsets:
            subset_entries.compute_subsets(key, store, benchmark, old, workers)
        for name, facts in [entry for entry in FACTS_FILES.items() if (store.root / entry[0]).is_dir()]:
            if facts:
                library_entries.remove_seconds(store.root / name, facts)
            library_entries.swap_folder(store.root / name, plan.folder / name)


def add(preset: Preset, benchmark: Benchmark, *, again: bool = False) -> None:
    """Put one preset's run into the library, computed in a store that outlasts an interruption."""
    store = Store(settings.store_root() / OWN_STORE, libraries=() if again else (settings.LIBRARY_FOLDER,), dated=False)
    run_id = open_inputs(preset.recipe(benchmark.pretrained, benchmark.experts)).run_id()
    if again and store.has_run(run_id):
        store.delete(run_id)
    run = build(preset, store, benchmark)
    if run.provenance != PRECOMPUTED:
        library_entries.copy_into_library(run)
    complete_learned([preset.key], benchmark)


def copy_finished_runs(presets: Sequence[Preset], place: Store, benchmark: Benchmark) -> list[str]:
    """Put finished runs of a store into the library as they are; the keys of those that came.

    A run has the id that these checkpoints, this recipe and the versions of its methods give, the recipe's very text,
    and scores on this benchmark; every file is what the manifest says.
    """
    came = []
    for one in presets:
        recipe = one.recipe(benchmark.pretrained, benchmark.experts)
        run = place.find(open_inputs(recipe).run_id())
        if run is None:
            print(f"{one.title}: no finished run in {place.root}")
        elif run.recipe_yaml != recipe.to_yaml() or run.benchmark != benchmark.digest or not run.has_scores:
            print(f"{one.title}: left there; its recipe is written otherwise, or it is not scored on this benchmark")
        else:
            library_entries.copy_into_library(run)
            came.append(one.key)
            print(f"{one.title}: taken", flush=True)
    if came:
        complete_learned(came, benchmark)
    return came


def complete_learned(keys: Sequence[str], benchmark: Benchmark) -> None:
    """List presets that learn as computed, and measure of them what the library lacks."""
    listing = settings.BUNDLED_FOLDER / LEARNED_LIST
    having = {*listing.read_text("utf-8").split(), *keys} if listing.exists() else set(keys)
    listing.write_text("".join(f"{one.key}\n" for one in PRESETS if one.key in having & LEARNING), "utf-8")
    store = Store(settings.store_root() / OWN_STORE, libraries=(settings.LIBRARY_FOLDER,), dated=False)
    for kind, key in list_learned_measurements(keys):
        recipe = find_preset(key).recipe(benchmark.pretrained, benchmark.experts)
        run = store.get_run(open_inputs(recipe).run_id())
        measure(kind, store, benchmark, run)
        found = measurement_store.find_measurement_result(kind, store, benchmark, run.id)
        if found is not None and found.provenance != PRECOMPUTED:
            library_entries.put_entry(
                found.path, settings.LIBRARY_FOLDER.parent / measurement_subject.FOLDER, measurement_store.FACTS
            )


def take_over(preset: Preset, store: Store, benchmark: Benchmark, old: Store | None) -> None:
    """Copy the run of a preset, if there is one."""
    recipe = preset.recipe(benchmark.pretrained, benchmark.experts)
    if old is not None and (kept := old.find(open_inputs(recipe, benchmark=benchmark).run_id())):
        shutil.copytree(kept.path, store.root / "runs" / kept.id)


def take_over_measurement(key: str, store: Store, benchmark: Benchmark, old: Store | None, run_id: str = "") -> bool:
    """Copy a measurement, if there is one; whether that would be measured anew otherwise, as every request does."""
    if old is None or not (kept := measurement_store.find_measurement_result(key, old, benchmark, run_id)):
        return False
    shutil.copytree(kept.path, store.root / measurement_subject.FOLDER / kept.path.name, dirs_exist_ok=True)
    return measurement_registry.find_measurement(key).is_repeated


def build(preset: Preset, store: Store, benchmark: Benchmark) -> Run:
    """The run of a preset, with scores and without weights."""
    print(f"{preset.title}: ", end="", flush=True)
    started = time.monotonic()
    recipe = preset.recipe(benchmark.pretrained, benchmark.experts)
    run = execute(recipe, store, benchmark=benchmark, keep_model=False)
    assert run.scores is not None
    found = summarize(run.scores, run.experts)
    print(
        f"in-domain {found.in_domain:.1%}, out-of-domain {found.out_of_domain:.1%}, H-score {found.h_score:.1%} "
        f"({time.monotonic() - started:.1f} s)",
        flush=True,
    )
    return run


def measure(key: str, store: Store, benchmark: Benchmark, run: Run | None = None) -> None:
    """A measurement of a run, or of the benchmark."""
    run_id, started = run.id if run else "", time.monotonic()
    print(f"Measuring {key} of {run.title if run else 'the benchmark'}: ", end="", flush=True)
    measuring.measure(key, store, benchmark, run_id)
    print(f"{time.monotonic() - started:.1f} s", flush=True)


def plan_sweeps(benchmark: Benchmark, swept: Sequence[SweptPresets], panel_scalings: Sequence[float]) -> list[Sweep]:
    """The sweeps of a library: those of ``swept``, and the panels of DRM's Figure 7, one for each scaling."""

    def recipe(key: str) -> Recipe:
        return find_preset(key).recipe(benchmark.pretrained, benchmark.experts)

    def scaled(key: str, value: float) -> Recipe:
        return replace(vary_recipe(recipe(key), "scaling", value), title=find_preset(key).title)

    own = [
        Sweep(
            recipes=tuple(recipe(key) for key in keys),
            axes=tuple(Axis(target, values) for target, values in axes.items()),
            images=0 if (keys, axes, title) == GRID else DEFAULT_IMAGES,
            title=title,
        )
        for keys, axes, title in swept
    ]
    panels = [
        Sweep(
            recipes=tuple(scaled(key, value) for key in DRM_COMPARED),
            axes=(Axis("density", DENSITIES),),
            title=f"DRM Fig. 7: density of DRM-H, DRM-V and TIES at scaling {value:g}",
        )
        for value in panel_scalings
    ]
    return [*own, *panels]


def compute_sweep(
    wanted: Sweep, store: Store, benchmark: Benchmark, library: Path | None, workers: Workers | None = None
) -> None:
    """All points of a sweep; those in the folder ``library`` are taken over."""
    started = time.monotonic()
    for name in {one.name for one in sweep_session.plan_sweep(wanted, benchmark)} if library else ():
        if (kept := library / points.FOLDER / name).is_dir():
            shutil.copytree(kept, points.points_folder(store) / name, dirs_exist_ok=True)
    print(f"Sweeping {' and '.join(wanted.labels)}: ", end="", flush=True)
    sweep_storage.store_sweep(wanted, store)
    sweep_session.run_sweep(wanted, store, benchmark, context=Context(workers=workers or ""))
    print(f"{time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
