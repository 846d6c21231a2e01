"""The command ``measure``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merging.base.outside_code import MEASUREMENTS, list_entry_points
from merging.base.text import printable
from merging.cli.call import Call
from merging.cli.exit_codes import DONE, FAILED, UsageError
from merging.cli.model_options import layer_inputs_option
from merging.cli.options import Command, argument, device_option, job_options, workers_option
from merging.cli.output import encode_json, print_warning, report_progress

if TYPE_CHECKING:
    from merging.study.analysis.measurement_store import StoredMeasurement
    from merging.study.runs.run_store import Store


def _name_outside() -> str:
    """The measurements of packages, for the help; they are not loaded."""
    names = [printable(entry.name, 40) for entry in list_entry_points(MEASUREMENTS)]
    return f"; of packages: {', '.join(names)}" if names else ""


@click.command(cls=Command)
@argument(
    "what",
    help="drift, layer_drift, ablation, put_back, first_order, features, tsne, along_steps, modules, "
    "depths, feature_bank, merge_path, robustness, robustness_choosing or spectra of a run; features_in_domain, "
    "tsne_in_domain or merge_path_in_domain, with the images of the experts' tasks; signs, pairs, predictors, "
    "model_map, robustness_references or robustness_references_choosing of its experts; joint_tsne or "
    "joint_tsne_in_domain of up to six runs together, cka of two; exemplars, drm_ablations, task_counts or "
    "method_times of the benchmark; "
    f"separate several by commas{_name_outside()}",
)
@argument("runs", nargs=-1, metavar="[RUN]...", help="the runs' ids, or at least their first six digits")
@layer_inputs_option
@workers_option
@job_options
@device_option
@click.pass_obj
def measure(
    call: Call, what: str, runs: Sequence[str], layer_inputs: Mapping[str, str],
    store: Path | None, device: str,
) -> int:  # fmt: skip
    """Compute measurements of stored runs, such as feature drift."""
    from merging.base import settings
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study import measure as measuring
    from merging.study.analysis.measurement_registry import find_measurement
    from merging.study.analysis.measurement_subject import SubjectKind
    from merging.study.runs.run import join_run_ids, split_run_ids
    from merging.study.runs.run_store import Store
    from merging.tasks.pack_folders import list_libraries

    stored_runs = Store(store, libraries=list_libraries(settings.benchmark_folder(), store))
    # The id is empty for a measurement of the benchmark.
    ids = [stored_runs.resolve_id(run) for subject in runs for run in split_run_ids(subject)] or [""]
    keys = [key.strip() for key in what.split(",")]
    if layer_inputs and (len(ids) > 1 or keys != ["layer_drift"]):
        raise UsageError(["--layer-inputs names files for layer_drift of one run."])
    requests = [
        (key, run_id)
        for key in keys
        for run_id in ([join_run_ids(ids)] if find_measurement(key).subject == SubjectKind.RUNS else ids)
    ]
    if len(requests) > 1:
        return _measure_several(call, requests, stored_runs, device)
    with report_progress(call.events) as progress:
        result = measuring.measure(
            requests[0][0], stored_runs, Benchmark.load(), requests[0][1], layer_inputs=layer_inputs,
            context=call.context(progress, device, print_warning),
        )  # fmt: skip
    if call.json:
        print(encode_json(_result_facts(result)))
    else:
        _print_result(result)
    return DONE


def _measure_several(call: Call, requests: Sequence[tuple[str, str]], store: Store, device: str) -> int:
    """Compute all measurements, and report the results in their order."""
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.measure_several import RequestedMeasurement, measure_several

    wanted_measurements = [RequestedMeasurement(*one) for one in requests]
    with report_progress(call.events) as progress:
        results = measure_several(
            wanted_measurements, store, Benchmark.load(), context=call.context(progress, device, print_warning)
        )
    measurements = [one for one in results if not isinstance(one, Exception)]
    failures = {
        " ".join(names).strip(): str(result)
        for names, result in zip(requests, results, strict=True)
        if result not in measurements
    }
    if call.json:
        print(encode_json({"measured": [_result_facts(one) for one in measurements], "failed": failures}))
    else:
        for one in measurements:
            _print_result(one)
    for request_text, reason in failures.items():
        print(f"{request_text}: {reason}", file=sys.stderr)
    return FAILED if failures else DONE


def _result_facts(result: StoredMeasurement) -> dict[str, Any]:
    names = ("key", "run_id", "device", "seconds", "provenance", "notes", "path")
    tables = {name: result.table(name).to_dict("records") for name in result.tables}
    return {name: getattr(result, name) for name in names} | {"tables": tables}


def _print_result(result: StoredMeasurement) -> None:
    from merging.study.analysis import measurement_registry, measurement_store
    from merging.study.runs.run import PRECOMPUTED

    title = measurement_registry.find_measurement(result.key).title
    time_text = (
        "precomputed"
        if result.seconds is None or result.provenance == PRECOMPUTED
        else f"{result.seconds:.1f} s on this machine"
    )
    print(f"{title} on {result.device}, {time_text}: {', '.join(result.tables)}")
    if memory := result.notes.get(measurement_store.MEMORY_NOTE):
        print(memory)
    print(f"Written to {result.path}")
