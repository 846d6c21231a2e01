"""Every kind of measurement, by key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from merging.base import outside_code
from merging.base.errors import StoreError
from merging.base.outside_code import LoadProblem, load_entry_points
from merging.base.text import did_you_mean, first_few
from merging.study.analysis.measurement_subject import SubjectKind
from merging.tasks.queue.job_kinds import JobKind


@dataclass(frozen=True)
class Measurement:
    """One kind of measurement.

    ``compute`` is "module:function", imported on first use, since some modules take seconds to load. ``trial`` is the
    function that computes one trial, if the measurement consists of trials. ``is_timed``: the results are times, which
    differ from one measurement to the next, so every request measures again. ``grows``: they are of all runs that are
    stored at the time, so every request measures again, too.
    """

    key: str
    title: str
    compute: str
    version: int = 1  # raised whenever results change
    subject: SubjectKind = SubjectKind.RUN
    is_timed: bool = False
    grows: bool = False
    seconds: float = 20.0  # estimated on two cores; used until a stored measurement has its time
    trial: str = ""
    run_table: str = ""  # the table of a run without which it cannot be measured
    any_network: bool = False  # whether it reads only weights or files of layer inputs, and runs no towers

    @property
    def is_repeated(self) -> bool:
        """Whether every request measures again and replaces what is stored."""
        return self.is_timed or self.grows


MEASUREMENTS = {
    measure.key: measure
    for measure in (
        Measurement("drift", "Feature drift", "merging.study.measurements.drift:measure_drift"),
        Measurement(
            "layer_drift",
            "Drift layer by layer",
            "merging.study.measurements.layer_drift:measure_layer_drift",
            any_network=True,
        ),
        Measurement(
            "ablation",
            "Ablation by kind of parameter",
            "merging.study.measurements.parameter_kinds:measure_ablation",
            version=2,
        ),
        Measurement(
            "features", "Features out of domain", "merging.study.measurements.features:measure_features", version=3
        ),
        Measurement(
            "features_in_domain",
            "Features in domain",
            "merging.study.measurements.features:measure_features_in_domain",
            version=2,
        ),
        Measurement("tsne", "t-SNE of features", "merging.study.measurements.tsne:measure_tsne", version=2),
        Measurement(
            "tsne_in_domain",
            "t-SNE of features in domain",
            "merging.study.measurements.tsne:measure_tsne_in_domain",
        ),
        Measurement(
            "joint_tsne",
            "Joint map of features",
            "merging.study.measurements.joint_tsne:measure_joint_tsne",
            subject=SubjectKind.RUNS,
            seconds=60.0,
        ),
        Measurement(
            "joint_tsne_in_domain",
            "Joint map of features in domain",
            "merging.study.measurements.joint_tsne:measure_joint_tsne_in_domain",
            subject=SubjectKind.RUNS,
            seconds=60.0,
        ),
        Measurement(
            "merge_path",
            "Features along the merge",
            "merging.study.measurements.merge_path:measure_merge_path",
            seconds=40.0,
        ),
        Measurement(
            "merge_path_in_domain",
            "Features along the merge, in domain",
            "merging.study.measurements.merge_path:measure_merge_path_in_domain",
            seconds=40.0,
        ),
        Measurement(
            "model_map",
            "Map of models",
            "merging.study.weight_space.model_map:measure_model_map",
            subject=SubjectKind.EXPERTS,
            grows=True,
            seconds=300.0,
            any_network=True,
        ),
        Measurement(
            "spectra",
            "Spectra of matrices",
            "merging.study.weight_space.matrix_spectra:measure_spectra",
            any_network=True,
        ),
        Measurement(
            "cka",
            "Similarity of features by depth",
            "merging.study.weight_space.feature_similarity:measure_similarity",
            subject=SubjectKind.RUNS,
            seconds=30.0,
        ),
        Measurement(
            "put_back",
            "What putting weights back gives",
            "merging.study.measurements.put_back:measure_put_back",
            version=2,
            seconds=300.0,
        ),
        Measurement(
            "first_order",
            "What putting weights back gives, to first order",
            "merging.study.measurements.first_order:measure_first_order",
        ),
        Measurement(
            "along_steps",
            "Loss along the steps of learning",
            "merging.study.measurements.along_steps:measure_along_steps",
            seconds=60.0,
            run_table="coefficient_steps",
        ),
        Measurement(
            "modules", "Modules on the reporting half", "merging.study.measurements.modules_on_images:measure_modules"
        ),
        Measurement(
            "depths", "Answers by depth", "merging.study.measurements.depths:measure_depths", version=2, seconds=60.0
        ),
        Measurement(
            "feature_bank",
            "Features for finding neighbors",
            "merging.study.measurements.feature_bank:measure_bank",
        ),
        Measurement(
            "robustness",
            "Accuracy on corrupted images",
            "merging.study.measurements.robustness:measure_robustness",
            seconds=80.0,
        ),
        Measurement(
            "robustness_choosing",
            "Accuracy on corrupted images, choosing half",
            "merging.study.measurements.robustness:measure_robustness_choosing",
            seconds=80.0,
        ),
        Measurement(
            "robustness_references",
            "Reference models on corrupted images",
            "merging.study.measurements.robustness:measure_references",
            subject=SubjectKind.EXPERTS,
            seconds=120.0,
        ),
        Measurement(
            "robustness_references_choosing",
            "Reference models on corrupted images, choosing half",
            "merging.study.measurements.robustness:measure_references_choosing",
            subject=SubjectKind.EXPERTS,
            seconds=120.0,
        ),
        Measurement(
            "signs",
            "Sign agreement",
            "merging.study.measurements.signs:measure_signs",
            version=2,
            subject=SubjectKind.EXPERTS,
            any_network=True,
        ),
        Measurement(
            "pairs",
            "Experts against experts",
            "merging.study.measurements.pairs:measure_pairs",
            version=2,
            subject=SubjectKind.EXPERTS,
            any_network=True,
        ),
        Measurement(
            "predictors",
            "What foretells losses",
            "merging.study.partners.predictors:measure_predictors",
            subject=SubjectKind.EXPERTS,
        ),
        Measurement(
            "exemplars",
            "Exemplar sensitivity",
            "merging.study.trials.exemplar_sensitivity:measure_sensitivity",
            version=3,
            subject=SubjectKind.BENCHMARK,
            seconds=300.0,
            trial="merging.study.trials.exemplar_sensitivity:compute_trial",
        ),
        Measurement(
            "drm_ablations",
            "Ablations of DRM",
            "merging.study.trials.drm_ablations:measure_ablations",
            version=2,
            subject=SubjectKind.BENCHMARK,
            seconds=300.0,
            trial="merging.study.trials.drm_ablations:compute_trial",
        ),
        Measurement(
            "task_counts",
            "Number of tasks",
            "merging.study.trials.task_counts:measure_counts",
            version=3,
            subject=SubjectKind.BENCHMARK,
            seconds=300.0,
            trial="merging.study.trials.task_counts:compute_trial",
        ),
        Measurement(
            "method_times",
            "Times of methods",
            "merging.study.trials.method_times:measure_times",
            subject=SubjectKind.BENCHMARK,
            seconds=300.0,
            is_timed=True,
        ),
    )
}


def find_refusal(measurement: Measurement, network: str) -> str:
    """Why a run of this network cannot have this measurement; empty if it can."""
    if not network or measurement.any_network:
        return ""
    return f"“{measurement.title}” passes images through CLIP towers; this run is of {network}."


@cache
def load_outside() -> tuple[dict[str, Measurement], tuple[LoadProblem, ...]]:
    """The measurements of packages with entry points, by key, and those that cannot be used, with the reasons."""
    found, problems = load_entry_points(outside_code.MEASUREMENTS, Measurement)
    taken = [
        LoadProblem(key, "the key is that of a measurement of Mergescope.") for key in found if key in MEASUREMENTS
    ]
    return {key: one for key, one in found.items() if key not in MEASUREMENTS}, (*problems, *taken)


def find_measurement(key: str) -> Measurement:
    """The measurement of a key; raises StoreError with the nearest key if it is unknown."""
    if key in MEASUREMENTS:
        return MEASUREMENTS[key]
    outside, problems = load_outside()
    if key not in outside:
        known = [*MEASUREMENTS, *outside]
        broken = f" Not loaded: {first_few(problems)}" if problems else ""
        raise StoreError(
            f"There is no measurement {key!r}.{did_you_mean(key, known)} Known: {', '.join(known)}.{broken}"
        )
    return outside[key]


def name_in_domain(key: str) -> str:
    """The key of the same measurement with images in domain, of a ``key`` with images out of domain."""
    return f"{key}_in_domain"


def find_job_kind(key: str) -> JobKind:
    """The kind of job that a measurement is; raises StoreError with the nearest key if it is unknown."""
    measurement = find_measurement(key)
    return JobKind(
        title=measurement.title,
        command=("measure", "{kind}", "{subject}"),
        computes_alone=measurement.is_timed,
        reads_table=measurement.run_table,
        expected_seconds="merging.study.analysis.measurement_store:expect_seconds",
    )
