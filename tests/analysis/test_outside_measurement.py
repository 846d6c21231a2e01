"""A measurement of another package: found by its entry point, computed, stored, and named where it is broken."""

from __future__ import annotations

from functools import partial

import own_code
import pytest

from merging.base.errors import StoreError
from merging.base.outside_code import MEASUREMENTS
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_registry
from merging.tasks.context import Context
from merging.tasks.queue.job_kinds import find_job_kind

SOURCE = """
import pandas as pd

from merging.study.analysis.measurement_registry import Measurement
from merging.study.analysis.measurement_subject import MeasurementResult


def count(subject, context):
    return MeasurementResult({"counts": pd.DataFrame({"n": [len(subject.recipe.experts)]})}, {"n": 1})


lab_count = Measurement("lab_count", "Number of experts", "lab_merges:count")
drift = Measurement("drift", "Drift", "lab_merges:count")
other = Measurement("another", "Other", "lab_merges:count")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes an installed package with entry points for measurements."""
    measurement_registry.load_outside.cache_clear()
    yield partial(own_code.install, tmp_path / "site", monkeypatch, SOURCE, group=MEASUREMENTS)
    own_code.forget_modules()
    measurement_registry.load_outside.cache_clear()
    own_code.forget_packages()


def test_it_is_measured_and_stored(package, store, library):
    package("lab_count = lab_merges:lab_count")
    benchmark = Benchmark.load(library)
    run = next(run for run in store.list_runs() if run.kind == "merge")
    first = measure.measure("lab_count", store, benchmark, run.id, context=Context("cpu"))
    assert first.table("counts")["n"].tolist() == [len(run.experts)]
    assert find_job_kind("lab_count").title == "Number of experts"


@pytest.mark.parametrize(
    "entries, says",
    [
        ("lab_count = lab_merges:none", "module 'lab_merges' has no attribute 'none'"),
        ("lab_count = lab_merges:count", "it is of the type function; expected Measurement"),
        ("lab_count = lab_merges:other", "the key is 'another', and the entry point 'lab_count'"),
        ("drift = lab_merges:drift", "drift: the key is that of a measurement of Mergescope"),
    ],
)
def test_a_broken_one_is_named(package, entries, says):
    package(entries)
    assert measurement_registry.find_measurement("drift").title == "Feature drift"
    with pytest.raises(StoreError, match="There is no measurement 'lab_count'") as refused:
        measurement_registry.find_measurement("lab_count")
    assert f"Not loaded: {'lab-merges 1.2' if 'drift' not in entries else 'drift'}" in str(refused.value)
    assert says in str(refused.value)


def test_the_known_ones_include_it(package):
    package("lab_count = lab_merges:lab_count")
    with pytest.raises(StoreError, match=r"Did you mean 'lab_count'\?.*Known: .*, lab_count\."):
        measurement_registry.find_measurement("lab_counts")
