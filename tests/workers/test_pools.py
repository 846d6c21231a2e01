"""Who computes, by the text of MERGESCOPE_WORKERS, and whether they fit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from merging.base.errors import MergingError, ParameterError, WorkerError
from merging.cli.main import main
from merging.tasks.queue.child_process import child_environment
from merging.tasks.worker import decode_answer
from merging.tasks.workers import pools
from merging.tasks.workers.checking import check_workers
from merging.tasks.workers.pools import open_pool, visible_gpus
from merging.tasks.workers.worker_choice import parse_choice
from merging.tasks.workers.worker_facts import describe_worker
from merging.tasks.workers.workers import Workers

ROOT = Path(__file__).resolve().parents[2]
OWN = describe_worker({"device": "cpu"})


def threads() -> Workers:
    """What a laboratory's function may give."""
    return Workers(ThreadPoolExecutor(2), 2)


def executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(3)


def number() -> int:
    return 3


def test_no_text_is_this_process() -> None:
    for text in ("", "  "):
        with open_pool(text) as workers:
            assert workers is None


@pytest.mark.parametrize(
    "text,error,words",
    [
        ("0", ParameterError, "a number of processes"), ("999", ParameterError, "at most 256"),
        ("many", ParameterError, "module:function"), ("no_such.module:open", WorkerError, "could not be opened"),
        ("test_pools:number", WorkerError, "returned a int; an Executor"),
    ],
)  # fmt: skip
def test_other_texts_are_refused(text: str, error: type[MergingError], words: str) -> None:
    with pytest.raises(error, match=words), open_pool(text):
        pass


@pytest.mark.parametrize("name,count", [("threads", 2), ("executor", 3)])
def test_a_function_gives_workers(name: str, count: int) -> None:
    with open_pool(f"{__name__}:{name}", device="cpu") as workers:
        assert workers is not None and workers.count == count


def test_gpus_are_those_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, 2,")
    assert visible_gpus() == ["0", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(WorkerError, match="no GPU"):
        visible_gpus()


@pytest.mark.full
def test_each_process_sees_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from merging.tasks.workers import checking

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    seen: list[Any] = []
    survey = checking.question_workers
    monkeypatch.setattr(checking, "question_workers", lambda *said: seen.extend(survey(*said)) or seen)
    with open_pool("gpus", device="cpu") as workers:
        assert workers is not None and workers.count == 2
    assert {each["gpu"] for each in seen} == {"0", "2"}


def test_a_job_finds_the_files_that_its_server_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERGESCOPE_WORKERS", "scheduler.json")
    monkeypatch.setenv("MERGESCOPE_CERTIFICATES", "keys")
    told = child_environment()
    assert told["MERGESCOPE_WORKERS"] == str(tmp_path / "scheduler.json")
    assert told["MERGESCOPE_CERTIFICATES"] == str(tmp_path / "keys")
    monkeypatch.setenv("MERGESCOPE_WORKERS", "4")
    assert child_environment()["MERGESCOPE_WORKERS"] == "4"


# Whether they fit


def pretending(*found: dict[str, Any], only: bool = False) -> tuple[Workers, list[set[str]]]:
    """Workers that say these things of themselves, and the names that were kept."""
    kept: list[set[str]] = []
    workers = Workers(ThreadPoolExecutor(1), len(found))
    answers = {str(n): {**OWN, "name": f"gpu{n}", "pid": n, **each} for n, each in enumerate(found)}

    def restricted(found: Collection[dict[str, Any]], named: bool) -> Workers:
        kept.append({each["name"] for each in found})
        return replace(workers, count=len(found))

    import json

    workers.ask_each = lambda unit, request: {
        name: json.dumps({"answer": said}).encode() for name, said in answers.items()
    }
    workers.restrict = restricted if only else None
    assert decode_answer(workers.ask_each("about", b"")["0"])["name"] == answers["0"]["name"]
    return workers, kept


@pytest.mark.parametrize(
    "other", [{"sources": "9af1" + "0" * 60}, {"torch": "1.0"}, {"numpy": "1.0"}, {"version": "0"}]
)
def test_another_program_is_refused_by_name(other: dict[str, Any]) -> None:
    workers, _ = pretending({}, other)
    with pytest.raises(WorkerError, match=r"^Worker gpu1 runs Mergescope .* this program is Mergescope"):
        check_workers(workers, lambda sentence: None, "cpu")
    workers, kept = pretending({}, other, only=True)
    said: list[str] = []
    assert check_workers(workers, said.append, "cpu").count == 1
    assert kept == [{"gpu0"}] and said[0].startswith("Worker gpu1 runs")


def test_other_hardware_is_left_out_and_named() -> None:
    gpu = {"hardware": "NVIDIA A100"}
    workers, kept = pretending(gpu, {}, gpu, only=True)
    said: list[str] = []
    fitting = check_workers(workers, said.append, "cpu")
    assert (fitting.count, fitting.hardware) == (2, "NVIDIA A100")
    assert kept == [{"gpu0", "gpu2"}]
    assert said == [f"1 of 3 workers is left out: it computes on {OWN['hardware']}, the others on NVIDIA A100."]
    with pytest.raises(WorkerError, match="one kind of machine"):
        check_workers(pretending(gpu, {})[0], said.append, "cpu")
    assert check_workers(pretending({}, {"python": "3.99"})[0], said.append, "cpu").count == 2


def test_only_keeps_the_workers_of_some_machines() -> None:
    other = {"sources": "9af1" + "0" * 60}
    workers, kept = pretending({}, other, {"name": "gpu2 GPU 0"}, {"name": "gpu2 GPU 1"}, only=True)
    said: list[str] = []
    assert check_workers(workers, said.append, "cpu", machines=("gpu0", "gpu2")).count == 3
    assert kept == [{"gpu0", "gpu2 GPU 0", "gpu2 GPU 1"}] and said == [], "of gpu1 nothing is said"
    with pytest.raises(WorkerError, match=r"^There is no worker on gpu9\. There are some on gpu0, gpu1, gpu2\."):
        check_workers(workers, said.append, "cpu", machines=("gpu0", "gpu9"))
    with pytest.raises(WorkerError, match="--only cannot leave some out"):
        check_workers(pretending({}, {})[0], said.append, "cpu", machines=("gpu0",))
    assert check_workers(pretending({}, {})[0], said.append, "cpu", machines=("gpu0", "gpu1")).count == 2


def test_mixed_lets_other_hardware_in_but_no_other_program() -> None:
    gpu = {"hardware": "NVIDIA A100"}
    workers, kept = pretending(gpu, {}, {"torch": "1.0"}, only=True)
    said: list[str] = []
    assert check_workers(workers, said.append, "cpu", mixed=True).count == 2
    assert kept == [{"gpu0", "gpu1"}] and len(said) == 1 and said[0].endswith("or leave it out with --only.")
    assert check_workers(pretending(gpu, {})[0], said.append, "cpu", mixed=True).count == 2


@pytest.mark.parametrize(
    "text,parts",
    [
        ("", ("", (), False)), (" 4 ", ("4", (), False)), ("a b.json only=x,y mixed", ("a b.json", ("x", "y"), True)),
        ("tls://a:1 mixed", ("tls://a:1", (), True)), ("gpus only=x", ("gpus", ("x",), False)),
    ],
)  # fmt: skip
def test_the_text_says_which_of_the_workers(text: str, parts: tuple[Any, ...]) -> None:
    assert tuple(parse_choice(text)) == parts and parse_choice(parse_choice(text).text) == parse_choice(text)


def test_commands_and_jobs_take_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERGESCOPE_WORKERS", "scheduler.json only=a")
    assert child_environment()["MERGESCOPE_WORKERS"] == f"{tmp_path}/scheduler.json only=a"
    here, taken = platform.node(), list[Any]()
    monkeypatch.setattr(pools, "check_workers", lambda *said: taken.append(said[3:]) or said[0])
    function = f"{__name__}:threads"
    assert main(["workers", "--workers", f"{function} mixed", "--device", "cpu"]) == 0
    assert main(["workers", "--workers", function, "--only", f"{here}, b", "--device", "cpu"]) == 0
    assert taken == [((), False), ((here, "b"), False)], "only points are mixed"
    assert main(["workers", "--workers", "", "--only", here]) == 2
    assert "--only and --mixed choose among workers" in capsys.readouterr().err
    with open_pool(f"{function} mixed", mixable=True):
        assert taken[-1] == ((), True)


def test_neighbors_share_the_memory_of_their_machine() -> None:
    gib = 1 << 30
    machines = [{"memory": 9 * gib, "name": f"big GPU {n}"} for n in range(3)] + [{"memory": 4 * gib}]
    assert check_workers(pretending(*machines)[0], str, "cpu").memory == 3 * gib
    limited = [*machines, {"memory": 4 * gib, "limit": 2 * gib}]
    workers = check_workers(pretending(*limited)[0], str, "cpu")
    assert workers.memory == 2 * gib
    workers.check_memory(2 * gib, "a point")
    with pytest.raises(WorkerError, match=r"^A point needs about 2\.5 GB of memory; the workers have 2\.15 GB each\."):
        workers.check_memory(int(2.5e9), "a point")


# The end of processes


@pytest.mark.full
def test_workers_end_with_their_program() -> None:
    program = (
        "import signal, time\nfrom merging.tasks.workers.pools import open_processes\n"
        "if __name__ == '__main__':\n"
        "    executor = open_processes(['', ''], '').executor\n"
        "    asked = [executor.submit(time.sleep, 1) for _ in 'ab']\n"
        "    print(*executor._processes, flush=True)\n"
        "    signal.pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    process.kill()
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 60  # a busy machine takes a while to end them
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(pids) == 2 and not any(psutil.pid_exists(pid) for pid in pids) and os.getpid() not in pids
