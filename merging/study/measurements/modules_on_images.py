"""The modules of a run on images that they did not learn from: the reporting half of all data sets.

Modules are what an adapt, the last step of a chain, puts on top of the merged model. Routing is weighting the experts
anew for each image. An exclusive vector is the difference of an expert from the merged weights.

For modules that need the task, the tables show how much of the feature shift they remove. For modules that route, they
show how the images of every data set are routed, also of data sets that were not merged. For modules that mix exclusive
vectors, each task's own vector is also used alone; as that requires knowing every image's task, it is not a score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import compute_features, predict
from merging.engine.modules.module_tables import routing_tables
from merging.images.image_encoder import Encoder
from merging.methods.shared.feature_shift import shift_row
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.engine.modules.modules import Modules
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.architecture import Architecture
    from merging.models.checkpoint import Checkpoint

SPLIT = "reporting"
MODULES_STAGE = "modules"  # a phase
SHIFT_TABLE, ROUTING_TABLE, CONFUSION_TABLE, ORACLE_TABLE = "feature_shift", "routing", "confusion", "oracle"
NO_MODULES_MESSAGE = "This run has no modules on top of its merged model. Only runs with an adapt have modules."


def measure_modules(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "feature_shift" of modules that need the task, "routing" and "confusion" of modules that route.

    Their columns are those of the run's own tables, which are of the images that it learned from. If exclusive vectors
    are mixed there is also "oracle": task, merged, routed, oracle, expert (accuracies, fractions), n.

    Raises:
        CheckpointError, TaskError: there are no modules, or a checkpoint of the run is missing or does not fit.
    """
    run, benchmark = subject.store.get_run(subject.run_id), subject.benchmark
    if not run.adapt:
        raise TaskError(NO_MODULES_MESSAGE)
    experts, stages = subject.checkpoints_on_benchmark.experts, subject.split_context(context, {MODULES_STAGE: 1.0})
    with subject.open_models(stages):
        assert subject.modules is not None  # the run has an adapt
        modules = subject.modules.on(choose_device(context.device))
        reporting_half = _ReportingHalf(
            benchmark, modules, stages[MODULES_STAGE].meter(_count_images(modules, benchmark))
        )
        tables = {}
        if modules.method.needs_task:
            tables[SHIFT_TABLE] = _build_shift_table(reporting_half, experts)
        if modules.method.routing is not None:
            weights = {
                task.key: reporting_half.map_images(reporting_half.compute_routing, task.key)
                for task in benchmark.tasks
            }
            tables |= routing_tables(weights, modules.tasks)
        if modules.method.exclusive:
            tables[ORACLE_TABLE] = _build_oracle_table(reporting_half, experts)
    notes = {"split": SPLIT, "images": sum(benchmark.count_images(task.key, SPLIT) for task in benchmark.tasks)}
    return MeasurementResult(tables, notes)


@dataclass(frozen=True)
class _ModuleInputs:
    """A function of images, called batch by batch on the device of the modules."""

    device: torch.device
    architecture: Architecture
    run: Callable[[Tensor], Tensor]

    def __call__(self, images: Tensor, /) -> Tensor:
        return self.run(images)


@dataclass(frozen=True)
class _ReportingHalf:
    """The reporting half of a benchmark, and the modules to run on it."""

    benchmark: Benchmark
    modules: Modules
    meter: Meter

    def map_images(self, compute: Callable[[Tensor], Tensor], task: str) -> Tensor:
        """The results (n, d) of a function of images (b, 3, h, w) for all n images of a data set."""
        model = _ModuleInputs(self.modules.device, self.modules.architecture, compute)
        images, prepare = self.benchmark.load_images(task, SPLIT)[0], self.benchmark.preprocess
        return compute_features(model, images, self.meter, "Asking modules", task, prepare)

    def compute_routing(self, images: Tensor) -> Tensor:
        """The routing weights (b, K) of images (b, 3, h, w)."""
        weights = self.modules.routing(images)
        assert weights is not None  # only called for modules that route
        return weights

    def compute_expert_features(self, expert: Checkpoint, task: str) -> Tensor:
        """An expert's features (n, e) of its task's images."""
        encoder = Encoder.from_checkpoint(expert, self.modules.device, fallback=self.benchmark.pretrained_tower)
        return self.map_images(lambda images: encoder(images).cpu(), task)

    def measure_accuracy(self, rows: Tensor, task: str) -> float:
        """The share of a data set's images whose class features (n, e) predict correctly."""
        labels = self.benchmark.load_labels(task, SPLIT)
        return float((predict(rows.float(), self.benchmark.load_head(task)) == labels).mean())


def _count_images(modules: Modules, benchmark: Benchmark) -> int:
    """The number of passes of images through models."""
    merged_images = sum(benchmark.count_images(task, SPLIT) for task in modules.tasks)
    all_images = sum(benchmark.count_images(task.key, SPLIT) for task in benchmark.tasks)
    return (
        merged_images * (3 * modules.method.needs_task + 4 * modules.method.exclusive)
        + all_images * (modules.method.routing is not None)
    )  # fmt: skip


def _build_shift_table(reporting_half: _ReportingHalf, experts: Mapping[str, Checkpoint]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for task, expert in experts.items():
        merged_features = reporting_half.map_images(reporting_half.modules.features, task)
        module_features = reporting_half.map_images(partial(reporting_half.modules.features, task=task), task)
        rows.append(
            shift_row(task, reporting_half.compute_expert_features(expert, task), merged_features, module_features)
        )
    return pd.DataFrame(rows)


def _build_oracle_table(reporting_half: _ReportingHalf, experts: Mapping[str, Checkpoint]) -> pd.DataFrame:
    """The accuracy with the true task's exclusive vector alone, and those of the merged model, router and expert."""
    modules, rows = reporting_half.modules, []
    for index, (task, expert) in enumerate(experts.items()):
        one_hot = torch.eye(len(experts))[index]

        def run_oracle(images: Tensor, one_hot: Tensor = one_hot) -> Tensor:
            return modules.mixed_features(images, one_hot.expand(len(images), -1))

        merged, routed, by_oracle = (
            reporting_half.map_images(run, task) for run in (_without_modules(modules), modules.features, run_oracle)
        )
        features_by_column = (merged, routed, by_oracle, reporting_half.compute_expert_features(expert, task))
        rows.append(
            (
                task,
                *(reporting_half.measure_accuracy(features_of, task) for features_of in features_by_column),
                len(merged),
            )
        )
    return pd.DataFrame(rows, columns=["task", "merged", "routed", "oracle", "expert", "n"])


def _without_modules(modules: Modules) -> Callable[[Tensor], Tensor]:
    """The merged model without its modules: the weight of every expert is zero."""
    zeros = torch.zeros(len(modules.tasks))
    return lambda images: modules.mixed_features(images, zeros.expand(len(images), -1))
