"""Sweeps on workers: the same bytes as here, and nothing lost when one dies."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_sweeps import RATIO, names, recipe, run, sweep

from merging.base.errors import StoreError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.models import digest_cache
from merging.models.formats import files_on_workers
from merging.study.run_queue import RunQueue
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps.sweep import Axis, Sweep, SweepPoint
from merging.tasks.context import Context
from merging.tasks.workers.workers import Workers


def bytes_of(store: Store) -> dict[str, bytes]:
    """Every file of a store, which `diff -r` would compare."""
    files = sorted(path for path in store.root.rglob("*") if path.is_file())
    return {path.relative_to(store.root).as_posix(): path.read_bytes() for path in files}


def many(benchmark: Benchmark, count: int = 12) -> Sweep:
    return sweep(benchmark, axes=(Axis(RATIO.target, tuple(round(n / count, 4) for n in range(count))),))


def test_shares_of_a_sweep_are_the_sweep(tiny_benchmark: Benchmark, store: Store, tmp_path: Path) -> None:
    made, shared = sweep(tiny_benchmark, "task_arithmetic", "ties"), Store(tmp_path / "shares", libraries=())
    run(made, store, tiny_benchmark)
    for number in range(2):
        run(made, shared, tiny_benchmark, share=(number, 2))
    assert bytes_of(shared) == bytes_of(store)
    assert len(points.read_latest_times(shared)) == len(names(shared)), "times lie beside the store"


def test_a_point_from_a_worker_is_the_same_file_whatever_it_took(
    tiny_benchmark: Benchmark, store: Store, threads: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = sweep(tiny_benchmark), Store(tmp_path / "other", libraries=())
    run(made, store, tiny_benchmark)
    compute = sweep_compute.SweepSession.compute

    def slowly(self: Any, planned: Any, stages: Any) -> Any:
        point, about = compute(self, planned, stages)
        return replace(point, seconds=dict.fromkeys(point.seconds, 9.0)), about | {"threads": 64}

    monkeypatch.setattr(sweep_compute.SweepSession, "compute", slowly)
    run(made, other, tiny_benchmark, workers=threads)
    assert bytes_of(other) == bytes_of(store)
    times = [(one["threads"], set(one["seconds"].values())) for one in points.read_latest_times(other)]
    assert times == [(64, {9.0})] * 3


def test_the_last_points_that_cannot_be_stored_end_it(
    tiny_benchmark: Benchmark, store: Store, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3)

    def full(*_said: Any) -> None:
        together.wait(20)
        time.sleep(0.3)  # the last answer has been taken
        raise StoreError("The disk is full.")

    monkeypatch.setattr(points, "write_point", full)
    with pytest.raises(StoreError, match="The disk is full"):
        run(sweep(tiny_benchmark), store, tiny_benchmark, workers=threads)


def test_points_that_cannot_be_stored_end_a_pause(
    tiny_benchmark: Benchmark, store: Store, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter(range(99))

    def full(*_said: Any) -> None:
        time.sleep(0.5)  # it is paused meanwhile
        raise StoreError("The disk is full.")

    monkeypatch.setattr(points, "write_point", full)
    with pytest.raises(StoreError, match="The disk is full"):
        run(sweep(tiny_benchmark), store, tiny_benchmark, workers=threads, pause=lambda: next(asked) >= 2)


@pytest.mark.parametrize("here", [True, False])
def test_what_another_sweep_has_stored_meanwhile_is_not_computed_again(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    compute, made, computed = sweep_compute.SweepSession.compute, many(tiny_benchmark), list[str]()

    def beside(self: Any, planned: Any, context: Any) -> Any:
        computed.append(planned.name)
        if len(computed) == 1:
            run(made, store, tiny_benchmark)
        return compute(self, planned, context)

    monkeypatch.setattr(sweep_compute.SweepSession, "compute", beside)
    with ThreadPoolExecutor(1) as pool:
        run(made, store, tiny_benchmark, workers="" if here else Workers(pool, 1))
    assert len(computed) <= 12 + 2 and len(names(store)) == 12, "all once, and what was asked for before"


# What a worker sees


def asked(benchmark: Benchmark) -> dict[str, Any]:
    made = sweep(benchmark)
    session = sweep_compute.SweepSession(benchmark, made.sample, Context("cpu"))
    return session.request(session.plan_point(made.points[0]))


def test_a_digest_is_believed_of_the_same_file_only(copied: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    request, fresh = asked(copied), digest_cache.DigestCache()
    monkeypatch.setattr(files_on_workers, "DIGESTS", fresh)
    session = sweep_compute.SweepSession(copied, points.PointSample.from_plain(request["sample"]), Context("cpu"))
    for given, checkpoint in zip(
        request["digests"], session.open_checkpoints(SweepPoint.from_plain(request["place"]).recipe), strict=True
    ):
        inode, size, changed = given["file"]
        for other in ([inode + 1, size, changed], [inode, size + 1, changed], [inode, size, changed + 1]):
            files_on_workers.remember_received_digest(checkpoint, given | {"file": other})
            assert fresh.find(checkpoint.file_fingerprint()) == ""
        files_on_workers.remember_received_digest(checkpoint, given)
        assert fresh.find(checkpoint.file_fingerprint()) == given["digest"] == checkpoint.digest


# The command, and the job of the app


@pytest.mark.full
def test_a_job_computes_on_the_workers_of_its_server(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORKERS": "2", "BENCHMARK": str(tiny_benchmark.folder)}.items():
        monkeypatch.setenv(f"MERGESCOPE_{name}", value)
    made, runner = many(tiny_benchmark), RunQueue(store, device="cpu")
    sweep_storage.store_sweep(made, store)
    phases, end = set[str](), time.monotonic() + 60
    job = runner.submit_sweep(made.id, "on two")
    while job.is_live and time.monotonic() < end:
        time.sleep(0.02)
        job = runner.get(job.id)
        phases.add(job.phase)
    runner.close()
    assert job.state == "done" and len(names(store)) == 12, job.error
    assert [phase for phase in phases if phase.endswith(" of 12, on 2 workers")]


@pytest.mark.full
def test_shares_of_a_described_sweep_are_the_sweep(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    file, common = tmp_path / "recipe.yaml", ["--store", str(store.root), "--device", "cpu"]
    file.write_text(recipe(tiny_benchmark).to_yaml(), "utf-8")
    vary = ["--vary", "lwptv.prune_ratio=0:1:0.2", "--images", "4"]
    assert main(["sweep", str(file), *vary, "--describe", *common]) == exit_codes.DONE
    made = capsys.readouterr().out.strip()
    assert len(made) == 12 and not points.points_folder(store).exists()
    stored = set[str]()
    for number in range(4):
        assert main(["sweep", "--stored", made, "--share", f"{number}/4", *common]) == exit_codes.DONE
        now = names(store)
        assert len(now - stored) == (2, 2, 1, 1)[number]
        stored = now
    assert f"Share 3/4 of sweep {made} is stored" in capsys.readouterr().out
    assert main(["sweep", "--stored", made, "--json", *common]) == exit_codes.DONE
    assert len(json.loads(capsys.readouterr().out)["points"]) == 6 and names(store) == stored
    for wrong in ("4/4", "1", "-1/4", "a/b"):
        assert main(["sweep", "--stored", made, f"--share={wrong}", *common]) == exit_codes.USAGE
    assert "0/16" in capsys.readouterr().err
    monkeypatch.setenv("MERGESCOPE_WORKERS", "nothing")
    assert main(["sweep", "--stored", made, *common]) == exit_codes.FAILED
    assert "module:function" in capsys.readouterr().err
    assert main(["sweep", "--stored", made, "--workers", "", *common]) == exit_codes.DONE
