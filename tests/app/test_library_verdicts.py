"""Every verdict on a claim about accuracies, computed again by numpy alone from the stored answers."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny_library
from plain_verdicts import PlainLibrary, resample
from swept_library import run_library_sweep

from app.reading.papers import paper_facts
from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.papers.claims import CLAIMS, Claim
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.paper_facts.comparison import Comparison, Verdict, judge
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Axis
from merging.study.trials import drm_ablations, exemplar_sensitivity
from merging.tasks.context import Context

pytestmark = pytest.mark.full
OF_ACCURACIES = (
    "accuracy", "sweep", "range", "exemplars", "altered", "counts", "drm", "ranks", "ablation", "neighbors",
)  # fmt: skip
PRESETS = ("task_arithmetic_lwptv", "task_arithmetic", "ties_lwptv", "ties", "lot")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny library with everything that the claims compare, but with fewer trials."""
    folder = tiny_library.write(tmp_path_factory.mktemp("judged"), PRESETS)
    benchmark, store = Benchmark.load(folder), Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    runs = {run.title: run.id for run in store.list_runs()}
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (exemplar_sensitivity, "COUNTS", (1, 4, 32)), (exemplar_sensitivity, "SEEDS", (0, 1)),
            (exemplar_sensitivity, "CANDIDATES", exemplar_sensitivity.CANDIDATES[::3]),
            (drm_ablations, "CUTS", (0.0, 0.2)),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        for key in ("exemplars", "drm_ablations"):
            measure.measure(key, store, benchmark, context=Context(device="cpu"))
    for key, title in (
        ("ablation", "LOT Merging"), ("features", "Task Arithmetic"), ("features", "Task Arithmetic w/ LwPTV"),
    ):  # fmt: skip
        measure.measure(key, store, benchmark, runs[title], context=Context(device="cpu"))
    sweep = partial(run_library_sweep, folder, folder / "measuring")
    sweep(presets=("task_arithmetic_lwptv",), axes=(Axis("lwptv.prune_ratio", (0.0, 0.7, 1.0)),), images=0)
    sweep(presets=("lot",), axes=(Axis("lot.scaling", (1.0, 1.5)),), images=13)
    sweep(presets=("drm_h", "ties_mean"), axes=(Axis("density", (0.1, 0.3, 0.9)),), images=16)
    for kind in (measurement_subject.FOLDER, "sweeps", "points"):
        (folder / "measuring" / kind).rename(folder / kind)
    return folder


def check_claim(claim: Claim, ours: Comparison, library: PlainLibrary) -> str:
    """Compare a claim's numbers with plain ones; returns the verdict."""
    question = library.ask(claim)
    assert question is not None, claim.key
    plain = resample(question)
    assert ours.difference == pytest.approx(plain.difference, abs=1e-6), claim.key
    assert ours.first - ours.second == pytest.approx(plain.difference, abs=1e-6), claim.key
    # Five standard errors of the ends of two bootstraps, of 10,000 and of 8,000 draws, and the steps of one image.
    images = sum(len(right) for right in next(iter(question.models.values())).values())
    tolerance = 0.05 * (plain.high - plain.low) + 200 / images
    assert (ours.low, ours.high) == pytest.approx((plain.low, plain.high), abs=tolerance), claim.key
    if min(abs(plain.low), abs(plain.high)) > tolerance:
        assert judge(claim.direction, ours) == plain.judge(claim.direction), claim.key
    return judge(claim.direction, ours)


def check_library(folder: Path) -> Counter[str]:
    """Check all claims about accuracies; returns how many of each fact were compared."""
    library, compared, verdicts = PlainLibrary(folder), Counter[str](), Counter[str]()
    for claim in CLAIMS:
        if claim.fact not in OF_ACCURACIES or (claim.fact == "counts" and claim.arguments["size"] < 8):
            continue
        ours = paper_facts.compare_claim(claim)
        if ours is None:
            assert library.ask(claim) is None, claim.key
        else:
            verdicts[check_claim(claim, ours, library)] += 1
            compared[claim.fact] += 1
            assert not math.isnan(ours.smallest_visible), claim.key
    assert verdicts[Verdict.NOT_MEASURED] == 0
    return compared


def test_verdicts_of_a_tiny_library(open_app: Any, measured: Path) -> None:
    open_app("home", measured)
    compared = check_library(measured)
    assert set(compared) == set(OF_ACCURACIES) - {"counts"}, compared  # which merge four experts, not eight


def test_verdicts_of_the_bundled_library(open_app: Any) -> None:
    open_app("home", settings.BUNDLED_FOLDER)
    compared = check_library(settings.BUNDLED_FOLDER)
    assert set(compared) == set(OF_ACCURACIES) and compared.total() == 33, compared
