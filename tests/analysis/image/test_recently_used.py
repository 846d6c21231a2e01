"""Values that threads share: each computed once, the least recently used one dropped, and nobody waits for others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
from pretend_device import NAME, pretend_device

from merging.images.benchmarks.benchmark import Benchmark
from merging.models.model_references import PRETRAINED
from merging.study.one_image.named_towers import RecentlyUsed, Towers
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

LONG = 60.0  # seconds


def test_the_least_recently_used_one_makes_room_before_the_next_is_computed() -> None:
    kept, held = RecentlyUsed[str](2), []
    for key in "abac":
        assert kept.get(key, lambda key=key: held.append(len(kept)) or key) == key
    assert held == [0, 1, 1] and "a" in kept and "b" not in kept and len(kept) == 2


def test_other_keys_do_not_wait_for_one_that_is_being_computed() -> None:
    kept, begun, ends = RecentlyUsed[str](4), Event(), Event()

    def slow() -> str:
        begun.set()
        assert ends.wait(LONG)
        return "slow"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(kept.get, "one", slow)
        try:
            assert begun.wait(LONG)
            assert kept.get("other", lambda: "fast") == "fast"
        finally:
            ends.set()
        assert waiting.result(LONG) == "slow"


def test_threads_that_ask_for_one_key_compute_it_once() -> None:
    kept, together, computed = RecentlyUsed[int](4), Barrier(4), []

    def ask() -> int:
        together.wait(LONG)
        return kept.get("key", lambda: computed.append(1) or 7)

    with ThreadPoolExecutor(4) as pool:
        assert [future.result(LONG) for future in [pool.submit(ask) for _ in range(4)]] == [7] * 4
    assert computed == [1]


def test_what_is_being_computed_takes_room_and_may_ask_for_others() -> None:
    kept, held = RecentlyUsed[str](2), []

    def outer() -> str:
        inner = kept.get("inner", lambda: held.append(sorted(key for key in "ab" if key in kept)) or "in")
        return f"{inner}, out"

    kept.get("a", lambda: "a")
    kept.get("b", lambda: "b")
    assert kept.get("outer", outer) == "in, out"
    assert held == [[]] and len(kept) == 2


def test_a_key_that_failed_is_computed_again() -> None:
    kept = RecentlyUsed[int](1)
    with pytest.raises(ZeroDivisionError):
        kept.get("key", lambda: 1 // 0)
    assert kept.get("key", lambda: 1) == 1 and kept.get("other", lambda: 2) == 2 and len(kept) == 1


@pytest.mark.parametrize("largest,kind", [(1 << 30, NAME), (1 << 10, "cpu")])
def test_towers_go_to_the_cpu_where_a_devices_memory_runs_out(
    tiny_benchmark: Benchmark, tmp_path: Path, largest: int, kind: str
) -> None:
    towers = Towers(Store(tmp_path, libraries=()), tiny_benchmark, Context(NAME))
    with pretend_device(largest=largest):
        for _ in range(2):
            tower = towers.retry_on_oom(lambda: towers(PRETRAINED))
            assert tower.encoder.device.type == kind and len(towers) == 1
