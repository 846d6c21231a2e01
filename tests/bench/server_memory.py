"""How much memory a server takes with one session on the bundled benchmark: whether a machine with 1 GiB is enough.

    python tests/bench/server_memory.py                       # read mode, all pages
    python tests/bench/server_memory.py --mode class --merge  # and a merge with its evaluation, in a process of its own

It prints the memory of the server and of its processes after each page, and the peak of both together, which is sampled
all the time. Memory that processes share counts in proportion (PSS) where the system tells.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil
from app_server import serve
from session_client import SessionClient

from merging.base import settings
from merging.recipes.presets import find_preset

PAGES = (
    "", "lessons", "methods", "scores", "masks", "conflicts", "drift", "features", "sweeps", "compare", "learning",
    "image", "report", "models", "merge",
)  # fmt: skip
TIER = 2**30  # bytes of a small hosted machine
SETTLED = 8.0  # seconds that a server has for what it loads after the first page


class Watch:
    """The memory of a process and of all that it starts, sampled until it is over."""

    def __init__(self, server: psutil.Process) -> None:
        self.server, self.peak, self._over = server, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def now(self) -> tuple[int, int]:
        """Bytes of the server, and of its processes."""
        return _bytes(self.server), sum(_bytes(child) for child in self.server.children(recursive=True))

    def end(self) -> None:
        """Sample no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.peak = max(self.peak, sum(self.now()))


def _bytes(process: psutil.Process) -> int:
    try:
        return int(getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss)
    except psutil.Error:
        return 0


async def visit(host: str, watch: Watch) -> None:
    """Open every page in one session."""
    async with SessionClient(host) as client:
        for page in PAGES:
            done = await client.open(page, {})
            if not page:
                await asyncio.sleep(SETTLED)
            server, others = watch.now()
            said = f"  {done.errors}" if done.errors else ""
            print(f"{page or 'home':<10} server {server / 2**20:6.0f} MiB, processes {others / 2**20:5.0f} MiB{said}")


def merge(place: Path) -> None:
    """A merge with its evaluation in a process of its own, as jobs have."""
    from merging.images.benchmarks.benchmark import Benchmark

    benchmark = Benchmark.load(settings.BUNDLED_FOLDER)
    recipe = find_preset("task_arithmetic").recipe(benchmark.pretrained, dict(list(benchmark.experts.items())[:4]))
    (place / "recipe.yaml").write_text(recipe.to_yaml(), "utf-8")
    words = [sys.executable, "-m", "merging", "run", str(place / "recipe.yaml"), "--store", str(place / "merged")]
    job, most = psutil.Popen(words, stdout=subprocess.DEVNULL), 0
    while job.poll() is None:
        most = max(most, _bytes(job))
        time.sleep(0.1)
    print(f"a merge    {most / 2**20:6.0f} MiB at its peak, in a process of its own beside the server")


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mode", choices=("full", "class", "read"), default="read")
    options.add_argument("--merge", action="store_true")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with serve(settings.BUNDLED_FOLDER, place, {"MERGESCOPE_MODE": asked.mode}, entry="app/serve.py") as url:
            port = url.rpartition(":")[2]
            server = next(one for one in psutil.Process().children() if one.cmdline()[-1] == port)
            watch = Watch(server)
            asyncio.run(visit(url.removeprefix("http://"), watch))
            watch.end()
            fits = "fits into" if watch.peak < TIER else "is more than"
            print(f"peak       {watch.peak / 2**20:6.0f} MiB, which {fits} 1 GiB ({asked.mode} mode)")
        if asked.merge:
            merge(place)


if __name__ == "__main__":
    main()
