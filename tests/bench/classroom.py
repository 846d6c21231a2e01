"""What a class costs one small server: sessions that go through lessons, with and without a running merge.

    python tests/bench/classroom.py                             # 1, 5, 20 and 60 sessions, a minute each
    python tests/bench/classroom.py --sessions 3 --seconds 30
    python tests/bench/classroom.py --busy                      # with merges that compute, one after the other
    python tests/bench/classroom.py --server 127.0.0.1:8501     # one that is running here already

Every session replays the steps of a lesson with think times of 5 to 20 s, as a browser asks for them: its rerun is done
when the server says so. Targets: no error; p95 at most 3 times that of one session alone, 4 times with a merge running;
a further session takes at most 1/40 of the server's own memory. Only servers on this machine are asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app_server import serve
from session_client import Rerun, SessionClient

from merging.base import settings
from merging.recipes.presets import find_preset
from merging.teaching.lesson_files import list_lessons

HERE = ("127.0.0.1", "localhost")
LESSONS = 3  # whose steps are replayed
NEXT = "lesson_next"  # the button of the rail
Step = tuple[str, dict[str, str], str]  # page, address, and what the rail says once the step is shown


def paths() -> list[list[Step]]:
    """The steps of each lesson, in order."""
    found = []
    for lesson in list_lessons()[:LESSONS]:
        count = len(lesson.steps)
        found.append(
            [
                (lesson.page_and_view(n)[0], {"lesson": lesson.key, "step": str(n)}, f"step {n} of {count}")
                for n in range(1, count + 1)
            ]
        )
    return found


async def session(
    host: str, steps: list[Step], until: float, think: tuple[float, float], draw: random.Random
) -> list[Rerun]:
    """One session's reruns, from a step of its own on."""
    reruns: list[Rerun] = []
    at = draw.randrange(len(steps))
    await asyncio.sleep(draw.uniform(0, think[0]))
    while time.monotonic() < until or not reruns:
        async with SessionClient(host) as client:  # it begins by a link, and goes on by the button of the rail
            for page, query, expected in steps[at:]:
                entered = not reruns or at == 0
                done = await (client.open(page, query, expected) if entered else client.press(NEXT, expected))
                errors = tuple(f"{page} {query}: {error}" for error in done.errors)
                reruns.append(replace(done, errors=errors, first=len(reruns) == 0))
                at = (at + 1) % len(steps)
                await asyncio.sleep(draw.uniform(*think))
                if time.monotonic() >= until:
                    return reruns
    return reruns


async def load(host: str, count: int, seconds: float, think: tuple[float, float]) -> list[Rerun]:
    """The reruns of so many sessions at once; those of the first seconds, which load modules, are among them."""
    ways, until = paths(), time.monotonic() + seconds
    asked = [session(host, ways[n % len(ways)], until, think, random.Random(n)) for n in range(count)]
    reruns = []
    for outcome in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(outcome, BaseException):
            reruns.append(Rerun(float("nan"), 0, (f"{type(outcome).__name__}: {outcome}",)))
        else:
            reruns += outcome
    return reruns


def status(host: str) -> dict[str, object]:
    """What the server says of itself."""
    with urllib.request.urlopen(f"http://{host}/status", timeout=30) as answered:
        return dict(json.load(answered))


def memory(host: str) -> int:
    """Resident bytes of the server."""
    return int(status(host)["memory"]["server"])  # type: ignore[index]


@contextmanager
def merging(store: Path, busy: bool) -> Iterator[None]:
    """While merges compute one after the other, if ``busy``."""
    over, process = threading.Event(), []

    def work() -> None:
        from merging.images.benchmarks.benchmark import Benchmark

        benchmark = Benchmark.load(settings.BUNDLED_FOLDER)
        for number in range(1000):
            recipe = find_preset("ties").recipe(
                benchmark.pretrained, dict(list(benchmark.experts.items())[: 2 + number % 6])
            )
            (store / "busy.yaml").write_text(recipe.to_yaml(), "utf-8")
            words = ["-m", "merging", "run", str(store / "busy.yaml"), "--store", str(store / str(number))]
            if over.is_set():
                return
            command = [sys.executable, *words, "--nice", "10"]
            process[:] = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
            process[0].wait()

    thread = threading.Thread(target=work)
    if busy:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for one in process:
            one.terminate()
        if busy:
            thread.join()


def quantile(ordered: list[float], share: float) -> float:
    """The value below which that share of the ordered values lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def report(count: int, reruns: list[Rerun], before: int, after: int) -> dict[str, float]:
    """A line for a number of sessions."""
    drawn = [rerun for rerun in reruns if rerun.seconds == rerun.seconds]
    times = sorted(rerun.seconds for rerun in drawn)
    first = sorted(rerun.seconds for rerun in drawn if rerun.first)
    errors = Counter(error for rerun in reruns for error in rerun.errors)
    p50, p95 = quantile(times, 0.5), quantile(times, 0.95)
    each = (after - before) / max(count, 1)
    print(
        f"{count:>4} sessions  {len(times):>5} reruns  p50 {1000 * p50:7.0f} ms  p95 {1000 * p95:7.0f} ms  "
        f"first of a session p95 {1000 * quantile(first, 0.95):7.0f} ms  {sum(errors.values())} errors  "
        f"server {after / 2**20:.0f} MiB, {each / 2**20:+.1f} MiB a session"
    )
    for error, times_seen in errors.most_common(5):
        print(f"     {times_seen} × {error}")
    return {
        "sessions": count,
        "reruns": len(times),
        "p50": p50,
        "p95": p95,
        "first_p95": quantile(first, 0.95),
        "errors": sum(errors.values()),
        "bytes": each,
    }


def main() -> int:
    """Measure, print a line for each number of sessions, and return an exit code: 1 after an error."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sessions", type=int, nargs="+", default=[1, 5, 20, 60])
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--think", type=float, nargs=2, default=(5.0, 20.0))
    options.add_argument("--busy", action="store_true")
    options.add_argument("--server", default="")
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    if asked.server and asked.server.rpartition(":")[0] not in HERE:
        options.error("only a server on this machine is asked: 127.0.0.1:PORT")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if asked.server:
            rows = measure(asked.server, asked, place)
        else:
            with serve(settings.BUNDLED_FOLDER, place, {"MERGESCOPE_MODE": "class"}, entry="app/serve.py") as url:
                rows = measure(url.removeprefix("http://"), asked, place)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1), "utf-8")
    return int(any(row["errors"] for row in rows))


def measure(host: str, asked: argparse.Namespace, place: Path) -> list[dict[str, float]]:
    """The lines of every number of sessions, after a session that loads what all need."""
    asyncio.run(load(host, 1, 0.0, (0.1, 0.1)))
    for step in [step for way in paths() for step in way]:  # caches are warm, as after the lecturer's own visit
        asyncio.run(one(host, step))
    rows = []
    with merging(place, asked.busy):
        for count in asked.sessions:
            before = memory(host)
            rows.append(
                report(count, asyncio.run(load(host, count, asked.seconds, tuple(asked.think))), before, memory(host))
            )
    return rows


async def one(host: str, step: Step) -> Rerun:
    """A step in a session of its own."""
    async with SessionClient(host) as client:
        return await client.open(*step)


if __name__ == "__main__":
    sys.exit(main())
