"""Downloads that break off, are cancelled or get something else: what came is kept, and nothing wrong is."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from loopback_hub import STORAGE, LoopbackHub

from merging.base.errors import Cancelled, HubError
from merging.base.progress import Progress
from merging.models.hub import download
from merging.models.hub.blob_cache import count_cached_bytes, find_snapshot, repository_folder
from merging.models.hub.fetch import fetch
from merging.models.hub.repository import Repository, RepositoryFile
from merging.tasks.context import Context

BYTES = bytes(range(256)) * 4000  # 1 MB
DIGEST = hashlib.sha256(BYTES).hexdigest()
FILE = RepositoryFile("model.safetensors", len(BYTES), DIGEST)
FETCH = """
import sys
from merging.models.hub.fetch import fetch
from merging.models.hub.repository import Repository, RepositoryFile
name, size, digest, commit = sys.argv[1:]
print(fetch(Repository("model", "tiny/clip", commit), [RepositoryFile(name, int(size), digest)]))
"""


@pytest.fixture
def model(loopback: LoopbackHub) -> Repository:
    """A repository with one large file, at its commit."""
    return Repository("model", "tiny/clip", loopback.add("model", "tiny/clip", {FILE.name: BYTES}))


def ranges(hub: LoopbackHub) -> list[str]:
    return [seen.range for seen in hub.requests if seen.method == "GET" and seen.port == STORAGE]


def started(hub: LoopbackHub, home: Path, model: Repository, file: RepositoryFile) -> subprocess.Popen[str]:
    """A process of its own that fetches a file."""
    words: Sequence[str] = [file.name, str(file.size), str(file.sha256), str(model.revision)]
    environment = {"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2]), **hub.environment(home)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", FETCH, *words], env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def until(true, limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_broken_connection_goes_on_where_it_broke(loopback: LoopbackHub, model: Repository) -> None:
    loopback.fail(port=STORAGE, cut=300_000)
    loopback.fail(port=STORAGE, cut=100_000)
    folder = fetch(model, [FILE])
    assert (folder / FILE.name).read_bytes() == BYTES
    assert ranges(loopback) == ["", "bytes=300000-", "bytes=400000-"]


def test_as_long_as_bytes_come_it_goes_on(loopback: LoopbackHub, model: Repository) -> None:
    loopback.fail(port=STORAGE, cut=100_000, times=9)
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES


def test_after_five_tries_without_a_byte_it_gives_up_and_says_what_is_kept(loopback, model) -> None:
    loopback.fail(port=STORAGE, cut=250_000)
    loopback.fail(port=STORAGE, cut=0, times=99)
    with pytest.raises(HubError, match=r"broke off again and again while model.safetensors of tiny/clip") as error:
        fetch(model, [FILE])
    assert "250 kB of 1.02 MB are kept, and the next download goes on from there" in str(error.value)
    assert len(ranges(loopback)) == 6 and error.value.later and find_snapshot(model) is None
    loopback.recover()
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES and ranges(loopback)[-1] == "bytes=250000-"


def test_a_server_that_ignores_ranges_sends_all(loopback: LoopbackHub, model: Repository) -> None:
    loopback.fail(port=STORAGE, cut=300_000)
    loopback.fail(port=STORAGE, ranges=False)
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES
    assert ranges(loopback) == ["", "bytes=300000-"]


def test_bytes_that_come_again_are_counted_as_more_to_do(loopback: LoopbackHub, model: Repository) -> None:
    part = repository_folder(model) / "blobs" / f"{DIGEST}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BYTES[:300_000])
    loopback.fail(port=STORAGE, ranges=False)
    seen: list[Progress] = []
    fetch(model, [FILE], context=Context(progress=seen.append))
    assert (seen[0].total, seen[-1].done, seen[-1].total) == (len(BYTES) - 300_000, len(BYTES), len(BYTES))
    assert all(progress.done >= 0 for progress in seen)


def test_what_an_earlier_call_left_is_used_or_dropped(loopback: LoopbackHub, model: Repository) -> None:
    part = repository_folder(model) / "blobs" / f"{DIGEST}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BYTES)
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES and ranges(loopback) == []
    (part.parent / DIGEST).unlink()
    part.write_bytes(BYTES + b"more")
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES and ranges(loopback) == [""]
    (part.parent / DIGEST).unlink()
    part.write_bytes(BYTES[:100])
    loopback.fail(port=STORAGE, status=416)
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES and ranges(loopback)[1:] == ["bytes=100-", ""]


def test_a_changed_byte_is_noticed_and_the_file_removed(loopback: LoopbackHub, model: Repository) -> None:
    loopback.fail(port=STORAGE, flip=70_000)
    with pytest.raises(HubError, match=f"its sha256 is ([0-9a-f]{{64}}), expected is {DIGEST}") as error:
        fetch(model, [FILE])
    assert error.value.reason == "digest" and loopback.host in str(error.value)
    assert not [path for path in (repository_folder(model) / "blobs").iterdir() if DIGEST in path.name]
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES


def test_a_small_file_is_checked_by_its_git_id(loopback: LoopbackHub) -> None:
    commit = loopback.add("model", "tiny/clip", {"config.json": b'{"a": 1}'})
    loopback.fail("config.json", flip=3)
    with pytest.raises(HubError, match=r"its git id is [0-9a-f]{40}, expected is [0-9a-f]{40}"):
        fetch(Repository("model", "tiny/clip", commit), [RepositoryFile("config.json")])


def test_a_small_file_may_be_known_by_its_sha256(loopback: LoopbackHub) -> None:
    commit = loopback.add("model", "tiny/clip", {"config.json": b'{"a": 1}'})
    file = RepositoryFile("config.json", None, hashlib.sha256(b'{"a": 1}').hexdigest())
    loopback.fail("config.json", flip=3)
    with pytest.raises(HubError, match=f"its sha256 is [0-9a-f]{{64}}, expected is {file.sha256}"):
        fetch(Repository("model", "tiny/clip", commit), [file])
    assert (fetch(Repository("model", "tiny/clip", commit), [file]) / file.name).is_file()


def test_a_mirror_with_another_file_is_noticed_before_it_comes(loopback: LoopbackHub, model: Repository) -> None:
    loopback.swap("model", "tiny/clip", FILE.name, b"another")
    other = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(HubError, match=rf"from {loopback.host} .* its sha256 is {other}, expected is {DIGEST}"):
        fetch(model, [FILE])
    assert ranges(loopback) == []


def test_a_server_that_falls_silent_is_asked_again(loopback, model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "STALL_SECONDS", 1.0)
    loopback.fail(port=STORAGE, stall=200_000)
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES
    assert ranges(loopback) == ["", "bytes=200000-"]


@pytest.mark.parametrize("fault", [{"status": 429, "headers": {"Retry-After": "0"}}, {"status": 503, "times": 3}])
@pytest.mark.parametrize("method,port", [("HEAD", "hub"), ("GET", "storage")])
def test_a_busy_server_is_asked_again(loopback: LoopbackHub, model: Repository, fault, method, port) -> None:
    loopback.fail(method=method, port=port, **fault)
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES


def test_an_address_that_has_expired_is_asked_for_again(loopback: LoopbackHub, model: Repository) -> None:
    loopback.fail(port=STORAGE, status=403)
    assert (fetch(model, [FILE]) / FILE.name).read_bytes() == BYTES
    assert loopback.count("/resolve/", "GET") == 2


@pytest.mark.parametrize("fault", [{"stall": 400_000}, {"rate": 100_000}])
def test_cancel_is_heeded_at_once_and_says_what_is_kept(loopback, model, monkeypatch, fault) -> None:
    monkeypatch.setattr(download, "STALL_SECONDS", 60.0)
    loopback.fail(port=STORAGE, **fault)
    stop, times = threading.Event(), []

    def ask() -> bool:
        if count_cached_bytes(model, [FILE]) > 60_000 and not times:
            times.append(time.monotonic())
            stop.set()
        return stop.is_set()

    with pytest.raises(
        Cancelled, match=r"Cancelled; [\d.]+ kB of 1.02 MB are kept, and the next download goes on"
    ) as end:
        fetch(model, [FILE], context=Context(cancel=ask))
    assert time.monotonic() - times[0] < 10  # a silent server would hold it for a minute; alone it takes 1 s
    assert "nothing" not in str(end.value)


def test_cancelled_before_a_byte_came(loopback: LoopbackHub, model: Repository) -> None:
    with pytest.raises(Cancelled, match="Cancelled; nothing was kept"):
        fetch(model, [FILE], context=Context(cancel=lambda: True))


def test_the_rate_is_limited(loopback: LoopbackHub, model: Repository) -> None:
    start = time.monotonic()
    fetch(model, [FILE], bytes_per_second=1e6)
    assert time.monotonic() - start >= 0.9 * len(BYTES) / 1e6


def test_four_files_come_at_once(loopback: LoopbackHub) -> None:
    names = [f"data/{number}.parquet" for number in range(6)]
    commit = loopback.add("dataset", "tiny/data", {name: name.encode() for name in names})
    loopback.fail(port=STORAGE, stall=3, times=4)
    stop = threading.Event()

    def ask() -> bool:
        if len(ranges(loopback)) == 4:
            threading.Timer(0.5, stop.set).start()
        return stop.is_set()

    with pytest.raises(Cancelled):
        fetch(Repository("dataset", "tiny/data", commit), map(RepositoryFile, names), context=Context(cancel=ask))
    assert len(ranges(loopback)) == 4


@pytest.mark.full
def test_two_processes_fetch_a_file_once(loopback: LoopbackHub, model: Repository, tmp_path: Path) -> None:
    loopback.fail(port=STORAGE, rate=1e6, times=9)
    processes = [started(loopback, tmp_path / "home", model, FILE) for _ in range(2)]
    ends = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    assert ends[0][0] == ends[1][0] and ranges(loopback) == [""]
    assert find_snapshot(model)


@pytest.mark.full
def test_a_killed_process_leaves_a_part_that_the_next_goes_on_from(loopback, tmp_path: Path) -> None:
    content = bytes(1 << 20) * 70
    commit = loopback.add("model", "tiny/clip", {FILE.name: content})
    model, file = Repository("model", "tiny/clip", commit), RepositoryFile(
        FILE.name, len(content), hashlib.sha256(content).hexdigest()
    )  # fmt: skip
    loopback.fail(port=STORAGE, stall=len(content) // 2)
    process = started(loopback, tmp_path / "home", model, file)
    until(lambda: count_cached_bytes(model, [file]) > len(content) // 2 - (1 << 20))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    kept = count_cached_bytes(model, [file])
    assert (fetch(model, [file]) / FILE.name).stat().st_size == len(content)
    assert ranges(loopback) == ["", f"bytes={kept}-"] and kept > len(content) // 2 - (1 << 20)


def test_a_file_known_by_its_git_id_is_held_to_it_whatever_digest_the_host_states(loopback: LoopbackHub) -> None:
    commit = loopback.add("model", "tiny/clip", {"model.safetensors": BYTES})
    sent = loopback.repositories["model", "tiny/clip"].commits[commit]["model.safetensors"]
    assert len(sent.etag) == 64
    model = Repository("model", "tiny/clip", commit)
    with pytest.raises(HubError, match="its git id is .* expected is " + "0" * 40):
        fetch(model, [RepositoryFile("model.safetensors", len(BYTES), None, "0" * 40)])
    known = RepositoryFile(
        "model.safetensors", len(BYTES), None, hashlib.sha1(b"blob %d\0" % len(BYTES) + BYTES).hexdigest()
    )
    assert (fetch(model, [known]) / "model.safetensors").read_bytes() == BYTES
