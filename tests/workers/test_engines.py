"""Dask and an own pool compute the same bytes as this process, and lose nothing."""

from __future__ import annotations

import json
import platform
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from dask_cluster import ROOT, Cluster, end_process, make_certificates, start_command, wait_until
from small_sweeps import RATIO, names, recipe, run, sweep

from merging.base.errors import Cancelled, WorkerError, WorkersGone
from merging.base.settings import CERTIFICATES_VARIABLE
from merging.cli import exit_codes
from merging.cli.commands.worker_amounts import LIFETIME, MEMORY
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.execute_several import RequestedRun, execute_several
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Axis, Sweep
from merging.tasks.context import Context
from merging.tasks.workers.pools import open_pool
from merging.tasks.workers.worker_facts import describe_worker

pytestmark = pytest.mark.filterwarnings("default")  # of the engines' own making
LISTENING = "LISTEN"


def many(benchmark: Benchmark, count: int) -> Sweep:
    return sweep(benchmark, axes=(Axis(RATIO.target, tuple(round(n / count, 4) for n in range(count))),))


def both_are_there(cluster: Cluster) -> bool:
    """Whether two workers have joined the scheduler, which takes them a while after their processes began."""
    with open_pool(str(cluster.file), device="cpu") as workers:
        return workers is not None and workers.count == 2


@pytest.mark.full
@pytest.mark.engine
def test_cancel_stops_what_dask_writes_and_some_workers_can_be_left_out(
    cluster: Cluster, tiny_benchmark: Benchmark, store: Store
) -> None:
    wait_until(lambda: both_are_there(cluster))
    stop = threading.Event()
    with open_pool(f"{cluster.file} only={platform.node()}", device="cpu") as workers:
        assert workers is not None and workers.count == 2
        long = recipe(tiny_benchmark, "wudi", params={"steps": 100_000})
        with pytest.raises(Cancelled):
            threading.Timer(3.0, stop.set).start()
            execute_several(
                [RequestedRun(long)], store, benchmark=tiny_benchmark,
                context=Context("cpu", cancel=stop, workers=workers),
            )  # fmt: skip
        wait_until(lambda: not list(store.root.rglob("*tmp-*")), 10)  # what the worker was writing
        kind = str(describe_worker({"device": "cpu"})["kind"])
        assert workers.restrict is not None
        assert not workers.restrict([{"kind": kind, "at": "tcp://10.9.9.9:1"}], True).has_workers()
        assert workers.ask_each is not None
        (at, *_) = workers.ask_each("about", b"{}")
        with pytest.raises(WorkerError, match="do not state their program"):  # as workers of dask's own command
            workers.restrict([{"kind": "of others", "at": at}], False)
    assert not store.list_runs()


@pytest.mark.full
@pytest.mark.engine
def test_nothing_listens_to_others_and_memory_is_kept(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wait_until(lambda: len(cluster.workers()) == 2)  # the one that was killed is back
    everyone = [cluster.scheduler.pid, cluster.worker.pid, *(each.pid for each in cluster.workers())]
    ports = [one for pid in everyone for one in psutil.Process(pid).net_connections() if one.status == LISTENING]
    assert len(ports) >= 4 and {one.laddr.ip for one in ports} == {"127.0.0.1"}
    assert all("MALLOC_TRIM_THRESHOLD_" not in each.environ() for each in cluster.workers())
    wait_until(lambda: main(["workers", "--workers", str(cluster.file), "--device", "cpu"]) == exit_codes.DONE)
    assert " of work at a time." in capsys.readouterr().out
    if stranger := make_certificates(tmp_path):
        monkeypatch.setenv(CERTIFICATES_VARIABLE, stranger)
        monkeypatch.setattr("merging.tasks.workers.dask_pool.CONNECT_SECONDS", 2.0)
        with pytest.raises(WorkersGone, match="No scheduler answers at tls://"), open_pool(str(cluster.file)):
            pass
        plain = json.loads(cluster.file.read_text("utf-8"))["address"].replace("tls:", "tcp:")
        with pytest.raises(WorkersGone, match="No scheduler answers at tcp://"), open_pool(plain):
            pass


@pytest.mark.full
@pytest.mark.engine
def test_a_worker_with_other_sources_gets_no_work(
    cluster: Cluster, tiny_benchmark: Benchmark, store: Store, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "merging", tmp_path / "merging", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "merging" / "study" / "sweeps" / "point_task.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef point(request):\n    raise WorkerError('Other sources computed this.')\n")
    other, said = start_command("worker", str(cluster.file), "--folder", str(tmp_path), folder=tmp_path), list[str]()
    try:
        with open_pool(str(cluster.file), said.append, "cpu") as workers:
            assert workers is not None and workers.count == 2
            run(many(tiny_benchmark, 16), store, tiny_benchmark, workers=workers)
    finally:
        end_process(other)
    assert (
        re.match(r"Worker .* runs Mergescope .* this program is .* Update it, or leave it out with --only\.", said[0])
        and said[1:] == []
    )


@pytest.mark.full
@pytest.mark.engine
def test_cancel_leaves_no_unit_behind(cluster: Cluster, tiny_benchmark: Benchmark, store: Store) -> None:
    stop = threading.Event()
    with open_pool(str(cluster.file), device="cpu") as workers:
        with pytest.raises(Cancelled):
            run(
                many(tiny_benchmark, 64), store, tiny_benchmark, workers=workers, cancel=stop,
                progress=lambda now: now.done and stop.set(),
            )  # fmt: skip
        assert workers is not None
        client = workers.executor._client  # type: ignore[attr-defined]
        wait_until(lambda: not any(client.processing().values()), 5)
    assert 1 <= len(names(store)) < 64


@pytest.mark.full
@pytest.mark.engine
def test_a_killed_scheduler_leaves_the_rest_for_later(  # the last one of the cluster
    cluster: Cluster, tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merging.tasks.workers.fan_out.MAX_SECONDS_WITHOUT_WORKERS", 1.0)

    def kill(_progress: Any) -> None:
        if len(names(store)) >= 2:
            cluster.scheduler.kill()

    made = many(tiny_benchmark, 16)
    with (
        pytest.raises(WorkersGone, match=r"^The workers at \S+ are gone\. \d+ of 16 points are stored\. Resume"),
        open_pool(str(cluster.file), device="cpu") as workers,
    ):
        run(made, store, tiny_benchmark, workers=workers, progress=kill)
    assert 2 <= (kept := len(names(store))) < 16
    begun_again = list[str]()
    run(made, store, tiny_benchmark, progress=lambda done: begun_again.append(done.phase))
    assert len(names(store)) == 16 and begun_again[0] == f"Point {kept + 1} of 16"


@pytest.mark.parametrize(
    "type_,text,value",
    [
        (LIFETIME, "7h50m", 28200), (LIFETIME, "90s", 90), (LIFETIME, "1d", 86400), (LIFETIME, "7:50", None),
        (MEMORY, "15GB", 15 * 10**9), (MEMORY, "1.5 GiB", 3 * 2**29), (MEMORY, "500m", 5 * 10**8), (MEMORY, "15", None),
    ],
)  # fmt: skip
def test_amounts(type_: Any, text: str, value: int | None) -> None:
    if value is not None:
        assert type_.convert(text, None, None) == value
        return
    with pytest.raises(click.BadParameter, match="is written as"):
        type_.convert(text, None, None)


def test_an_address_of_others_needs_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CERTIFICATES_VARIABLE, raising=False)
    for text, words in (
        ("tcp://10.0.0.1:8786", "run code of anyone"), ("tls://10.0.0.1:8786", "needs certificates"),
        ("http://127.0.0.1:1", "An address is tls://"),
    ):  # fmt: skip
        with pytest.raises(WorkerError, match=words), open_pool(text):
            pass
    monkeypatch.setenv(CERTIFICATES_VARIABLE, str(tmp_path))
    with pytest.raises(WorkerError, match=r"ca\.pem, cert\.pem, key\.pem is missing"), open_pool("tls://10.0.0.1:8786"):
        pass
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    tmp_path.chmod(0o755)
    with pytest.raises(WorkerError, match="Other users may read"), open_pool("tls://10.0.0.1:8786"):
        pass


def test_without_a_scheduler_work_is_left_for_later(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed; pip install -r requirements-workers.txt")
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    away = str(tmp_path / "none.json")
    with pytest.raises(WorkersGone, match="not the file of a scheduler that runs"), open_pool(away):
        pass
    assert main(["workers", "--workers", away, "--store", str(tmp_path)]) == exit_codes.FAILED  # nothing to resume
    assert "start one with --file" in capsys.readouterr().err
    away = "tcp://127.0.0.1:9"
    monkeypatch.setattr("merging.tasks.workers.dask_pool.CONNECT_SECONDS", 0.5)
    with pytest.raises(WorkersGone, match="No scheduler answers at"), open_pool(away):
        pass
    command = ["measure", "task_counts", "--workers", away, "--store", str(tmp_path / "store")]
    assert main(command) == exit_codes.PAUSED
