"""Evaluation, adapts and every measurement on the pretend accelerator: what the CPU gives, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from daily import some_of
from pretend_device import NAME, pretend_device
from torch.nn.attention import SDPBackend, sdpa_kernel

import merging
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods import registry as methods
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.analysis import measurement_registry
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.analysis.measurement_subject import SubjectKind
from merging.study.measure import measure
from merging.study.measurements import put_back_images
from merging.study.previews.preview_samples import PreviewSample
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.trials import drm_ablations, exemplar_sensitivity, method_times, task_counts
from merging.tasks.context import Context

CHAINS: dict[str, dict[str, Any]] = {
    "plain": {"merge": "task_arithmetic"},
    "adamerging": {"merge": "adamerging", "params": {"steps": 2}},
    "surgery": {"merge": "task_arithmetic", "adapt": ("surgery", {"rank": 4, "steps": 2})},
    "wemoe": {"merge": "task_arithmetic", "adapt": ("wemoe", {"steps": 2})},
    "twin": {"merge": "task_arithmetic", "adapt": ("twin", {"steps": 2})},
    "mass": {"merge": "task_arithmetic", "adapt": ("mass", {})},
    "emr": {"merge": "emr"},
}
ON_CHAIN = {"along_steps": "adamerging", "modules": "twin"}  # the chain that a measurement needs
# Of several runs together: a joint map is fitted on the CPU to features, which the measurement "features" compares.
COMPARED = {key: one for key, one in measurement_registry.MEASUREMENTS.items() if one.subject != SubjectKind.RUNS}
TIMED = "method_times"  # differ from run to run
OF_FILES = "layer_drift"  # reads layer inputs from files
# Part of the work of measurements that go through many merges: (module, constant, its value here).
LESS = (
    (exemplar_sensitivity, "COUNTS", (8,)), (exemplar_sensitivity, "SEEDS", (0,)),
    (drm_ablations, "CUTS", (0.1,)), (drm_ablations, "VARIANTS", drm_ablations.VARIANTS[:1]),
    (task_counts, "PRESETS", ("drm_h",)), (task_counts, "MAX_SUBSETS", 1),
    (put_back_images, "SAMPLE", PreviewSample(4)), (method_times, "TIMED_ROUNDS", 0),
    (method_times, "MIN_SECONDS", 1e-9),
    (exemplar_sensitivity, "CANDIDATES", exemplar_sensitivity.CANDIDATES[:1]),
    (methods, "list_methods", lambda: (methods.find_merge("ties"), methods.find_edit("cat"))),
)  # fmt: skip


class Stores:
    """A store for each device, with the same runs in both."""

    def __init__(self, folder: Path, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self.of = {device: Store(folder / device, libraries=()) for device in ("cpu", NAME)}

    def run(self, chain: str, device: str) -> Run:
        """The run of a chain."""
        given = CHAINS[chain]
        models = (self.benchmark.pretrained, self.benchmark.experts)
        recipe = Recipe.build(given["merge"], given.get("params", {}), [], *models, adapt=given.get("adapt"))
        return execute(recipe, self.of[device], benchmark=self.benchmark, context=Context(device=device))

    def measured(self, key: str, device: str) -> StoredMeasurement:
        """A measurement, of a run if it is of one."""
        chain = ON_CHAIN.get(key, "plain")
        kind = measurement_registry.find_measurement(key).subject
        run = "" if kind == SubjectKind.BENCHMARK else self.run(chain, device).id
        files = self.layer_inputs() if key == OF_FILES else {}
        return measure(key, self.of[device], self.benchmark, run, layer_inputs=files, context=Context(device=device))

    def layer_inputs(self) -> dict[str, str]:
        """Files of rows that enter the first layer of an MLP, for every expert."""
        name, draw = "visual.transformer.resblocks.0.mlp.c_fc.weight", torch.Generator().manual_seed(0)
        files = {}
        for expert, reference in self.benchmark.experts.items():
            width = open_checkpoint(reference).infos[name].shape[1]
            files[expert] = str(self.of["cpu"].root / f"{expert}.rows.safetensors")
            merging.save_layer_inputs(files[expert], {name: torch.randn(12, width, generator=draw)})
        return files


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, tiny_benchmark: Benchmark) -> Iterator[Stores]:
    # The CPU's fused attention rounds otherwise, and where a singular value lies at a cut-off or two tasks get nearly
    # the same weight, the last bit of a feature decides.
    with pretend_device(), sdpa_kernel(SDPBackend.MATH):
        yield Stores(tmp_path_factory.mktemp("stores"), tiny_benchmark)


@pytest.mark.parametrize("chain", some_of(CHAINS, "plain"))
def test_runs_have_the_scores_that_they_have_on_the_cpu(chain: str, stores: Stores) -> None:
    expected, run = stores.run(chain, "cpu"), stores.run(chain, NAME)
    assert run.device == NAME.upper() and run.id == expected.id and run.warnings == expected.warnings
    for name in expected.tables:
        pd.testing.assert_frame_equal(run.table(name), expected.table(name), check_exact=True, obj=name)
    assert run.scores is not None and run.scores.equals(expected.scores)


@pytest.mark.full
@pytest.mark.parametrize("key", some_of(COMPARED, "drift", "depths"))
def test_measurements_give_what_they_give_on_the_cpu(key: str, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, less in LESS:
        monkeypatch.setattr(module, name, less)
    expected, measured = stores.measured(key, "cpu"), stores.measured(key, NAME)
    assert measured.device == NAME.upper() and measured.tables == expected.tables
    if key != TIMED:
        assert measured.notes == expected.notes
        for name in expected.tables:
            pd.testing.assert_frame_equal(measured.table(name), expected.table(name), check_exact=True, obj=name)
