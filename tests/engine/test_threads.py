"""No byte depends on the number of threads: every method, heads, features and points, with one and with several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import thread_digests
import torch

from merging.base import threads
from merging.base.threads import limit_to_one_thread, parallel_pieces, run_in_threads
from merging.models.checkpoint import MappingCheckpoint

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/support/thread_digests.py"
GPU = torch.device("meta")  # stands for any device that is not the CPU
PATIENCE = 60.0  # seconds that a busy machine may take


@pytest.fixture
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.full
def test_no_byte_depends_on_the_number_of_threads(tmp_path: Path) -> None:
    folders = f"{SCRIPT.parent}:{ROOT / 'tests/bench'}:{ROOT}"
    started = {
        count: subprocess.Popen(
            [sys.executable, SCRIPT, tmp_path / count], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "PYTHONPATH": folders},
        )
        for count in ("1", "4")
    }  # fmt: skip
    found = {}
    for count, process in started.items():
        out, error = process.communicate(timeout=1200)
        assert process.returncode == 0, error
        found[count] = json.loads(out)
        assert found[count].pop("threads") == count
    assert list(found["1"]) == list(found["4"]) and len(found["1"]) > 40
    assert [case for case, digest in found["1"].items() if digest != found["4"][case]] == []


@pytest.fixture(scope="module")
def models() -> dict[str, MappingCheckpoint]:
    return thread_digests.family(128)


@pytest.mark.parametrize("name", thread_digests.LEARNING)
def test_what_runs_networks_gives_the_same_bytes_with_two_threads(
    name: str, models: dict[str, MappingCheckpoint]
) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(thread_digests.digest_named(name, models))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


@pytest.mark.usefixtures("three")
def test_one_thread_for_each_operation_and_as_many_pieces_as_before() -> None:
    with limit_to_one_thread(), limit_to_one_thread():
        assert (torch.get_num_threads(), parallel_pieces(), parallel_pieces(GPU)) == (1, 3, 1)
    with limit_to_one_thread(GPU):
        assert torch.get_num_threads() == parallel_pieces() == 3
    with pytest.raises(KeyError), limit_to_one_thread():
        raise KeyError
    assert torch.get_num_threads() == parallel_pieces() == 3


@pytest.mark.usefixtures("three")
def test_tasks_run_beside_each_other_with_one_thread_each_and_results_come_in_their_order() -> None:
    met = threading.Barrier(3)

    def task(number: int) -> tuple[int, int, int]:
        met.wait(PATIENCE)
        return number, torch.get_num_threads(), parallel_pieces()

    with run_in_threads(partial(task, number) for number in range(6)) as results:
        assert list(results) == [(number, 1, 1) for number in range(6)]
    assert torch.get_num_threads() == parallel_pieces() == 3


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(("nbytes", "workers"), [(0, 3), (25, 3), (26, 2), (34, 1), (500, 1)])
def test_as_many_tasks_run_as_fit_into_memory_with_a_result_that_waits(
    nbytes: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "piece_memory", lambda: 100)
    seen = set[int]()
    with run_in_threads((threading.get_ident for _ in range(2)), nbytes=nbytes) as results:
        seen.update(results)
    assert (threading.get_ident() in seen) == (workers == 1)
    asked = []
    monkeypatch.setattr(
        threads, "map_in_threads", lambda tasks, count, *_: asked.append(count) or limit_to_one_thread()
    )
    with run_in_threads([], nbytes=nbytes):
        assert asked == [workers] * (workers > 1)
