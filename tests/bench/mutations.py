"""Breaks merging/ on purpose, one small change at a time, and runs the fast tests that should notice.

    make mutations                                   # all of mutations/*.yaml, one after another, about half an hour
    python tests/bench/mutations.py --only ties      # those with that word in their file, change or tests
    python tests/bench/mutations.py --sample 60      # that many, the same each time
    python tests/bench/mutations.py --resume FILE    # keep outcomes there; skip what was caught and has not changed
    python tests/bench/mutations.py --jobs 4         # in four copies of the tree at once

A mutation is a change by pattern (patterns.py) of a function, method or value that it names, and the tests that must
fail then, of those that `make test` runs. In a file that is no program, a text that occurs once is the pattern. Each
runs in a copy of the tree, never in this one. First all tests run there unchanged: they must pass, so that a failure is
the mutation's. A change under which the tests hang until the time limit counts as caught, and the summary says so. What
no test notices is printed as a survivor, and the exit code is 1: it needs a test, or, if the program does the same with
it, another mutation in its place.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from patterns import change

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).with_name("mutations")
TESTS = "not full and not engine and not browser"  # what `make test` runs, but for the browser
LIMIT = 180.0  # seconds that the tests of one mutation may take
CAUGHT, LIMITED, SURVIVED, BROKEN = "caught", "caught by the time limit", "SURVIVED", "COULD NOT RUN"
PASSED, FAILED, INTERRUPTED = 0, 1, 2  # exit codes of pytest; with -x, an import that fails interrupts it
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "node_modules")


@dataclass(frozen=True)
class Mutation:
    """One change of a part of a file, and the arguments of pytest that choose the tests."""

    file: str
    part: str
    change: str
    tests: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The test files and folders, without options and names of tests."""
        return tuple(part.partition("::")[0] for part in shlex.split(self.tests) if part.startswith("tests/"))

    def text(self) -> str:
        """The change in one line."""
        return f"{self.file}: {self.part}: {self.change}"

    def changed(self, source: str) -> str:
        """The file's text with the change. Raises ValueError unless there is one place for it."""
        if self.file.endswith(".py"):
            return change(source, self.part, self.change)
        old, _, new = self.change.partition(" -> ")
        if (count := source.count(old)) != 1:
            raise ValueError(f"{old!r} occurs {count} times; it must occur exactly once.")
        return source.replace(old, new)

    def digest(self, root: Path) -> str:
        """Changes whenever the mutation, its file or one of its test files does."""
        whole = hashlib.sha256(repr(self).encode())
        tests = [root / name for name in self.paths]
        files = [file for path in tests for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
        for path in (root / self.file, *sorted(files)):
            whole.update(path.read_bytes())
        return whole.hexdigest()


def read_lists(folder: Path = LISTS) -> list[Mutation]:
    """Every mutation: a list is a YAML mapping {file: {tests, changes: {part: change, or several}}}."""
    mutations = []
    for path in sorted(folder.glob("*.yaml")):
        for file, entry in yaml.safe_load(path.read_text("utf-8")).items():
            for part, changes in entry["changes"].items():
                texts = changes if isinstance(changes, list) else [changes]
                mutations += [Mutation(file, part, text, " ".join(entry["tests"].split())) for text in texts]
    return mutations


class Worker:
    """A copy of the working tree with compiled modules, and a process that runs pytest in it."""

    def __init__(self, stack: ExitStack) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mutations-", ignore_cleanup_errors=True))
        self.tree, home = Path(folder, "tree"), Path(folder, "home")
        shutil.copytree(ROOT, self.tree, ignore=LEFT_OUT)
        home.mkdir()
        rooms = ["merging", "viz", "app"]
        subprocess.run([sys.executable, "-m", "compileall", "-q", *rooms], cwd=self.tree, check=False)
        options = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HOME": str(home), "TMPDIR": str(home)}
        command = [sys.executable, str(Path(__file__).with_name("warm_pytest.py"))]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, cwd=self.tree, env=os.environ | options, **pipes)
        stack.callback(self._process.communicate)
        stack.callback(self._process.kill)

    def pytest(self, arguments: Sequence[str], limit: float) -> tuple[int | None, str]:
        """The exit code of pytest, None at the time limit, and the end of what it printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"arguments": [*arguments, "-m", TESTS], "folder": str(self.tree), "limit": limit}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["code"], answer["output"]


def outcome(mutation: Mutation, worker: Worker, limit: float) -> tuple[str, str]:
    """What the tests make of a mutation, and what they printed if they could not run."""
    path = worker.tree / mutation.file
    source, times = path.read_text("utf-8"), path.stat()
    try:
        path.write_text(mutation.changed(source), "utf-8")
        os.utime(path, (times.st_atime, times.st_mtime + 10))  # so that compiled code of another time is not taken
        code, output = worker.pytest(shlex.split(mutation.tests), limit)
    finally:
        path.write_text(source, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if code is None:
        return LIMITED, ""
    outcomes = {PASSED: SURVIVED, FAILED: CAUGHT, INTERRUPTED: CAUGHT}
    return (outcomes[code], "") if code in outcomes else (BROKEN, output)


def check_unchanged(mutations: Sequence[Mutation], worker: Worker, limit: float) -> None:
    """Exit with what pytest prints unless all tests pass as they are."""
    paths = sorted({path for mutation in mutations for path in mutation.paths})
    print(f"Running {len(paths)} files and folders of tests unchanged ...", flush=True)
    started = time.monotonic()
    code, output = worker.pytest(paths, limit * 10)
    if code != PASSED:
        sys.exit(f"The tests do not pass unchanged, so that nothing can be told from them:\n{output}")
    print(f"They pass, in {time.monotonic() - started:.0f} s.", flush=True)


def run_all(
    mutations: Sequence[Mutation], workers: Sequence[Worker], limit: float, resume: Path | None
) -> Counter[str]:
    """Run mutations, one at a time by each worker; prints every outcome as it comes, and the survivors at the end."""
    tallies, survivors, rest = Counter[str](), list[str](), iter(list(enumerate(mutations, 1)))

    def work(worker: Worker) -> None:
        for number, mutation in rest:
            digest, started = mutation.digest(worker.tree), time.monotonic()
            result, output = outcome(mutation, worker, limit)
            seconds, text = round(time.monotonic() - started, 1), mutation.text()
            print(f"{number:3d}/{len(mutations)} {seconds:6.1f} s  {result}: {text}\n{output}".rstrip(), flush=True)
            tallies[result] += 1
            survivors.extend([text] if result in {SURVIVED, BROKEN} else [])
            if resume is not None:
                with resume.open("a", encoding="utf-8") as file:
                    row = {"digest": digest, "outcome": result, "seconds": seconds, "mutation": text}
                    file.write(json.dumps(row) + "\n")

    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(work, workers))
    print("\n".join(["", *(f"Not caught: {text}" for text in survivors)]))
    return tallies


def caught_before(resume: Path | None) -> set[str]:
    """Digests of the mutations that an earlier run caught."""
    if resume is None or not resume.is_file():
        return set()
    rows = [json.loads(line) for line in resume.read_text("utf-8").splitlines()]
    return {row["digest"] for row in rows if row["outcome"] in {CAUGHT, LIMITED}}


def main() -> int:
    """Exit code 0 if every mutation was caught, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default="", help="run those with this text in their file, change or tests")
    parser.add_argument("--sample", type=int, help="run that many of them, drawn with a fixed seed")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that work at once")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for the tests of one mutation")
    parser.add_argument("--resume", type=Path, help="a file of outcomes: what it says is caught is not run again")
    parser.add_argument("--list", action="store_true", help="print the mutations and run nothing")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests unchanged first")
    options = parser.parse_args()
    mutations = [each for each in read_lists() if options.only in f"{each.text()} {each.tests}"]
    if options.sample is not None:
        mutations = random.Random(0).sample(mutations, min(options.sample, len(mutations)))
    if options.list:
        print("\n".join(each.text() for each in mutations))
        return 0
    known, started = caught_before(options.resume), time.monotonic()
    rest = [each for each in mutations if each.digest(ROOT) not in known]
    with ExitStack() as stack:
        workers = [Worker(stack) for _ in range(max(options.jobs, 1))]
        if rest and not options.unchecked:
            check_unchanged(rest, workers[0], options.limit)
        tallies = run_all(rest, workers, options.limit, options.resume)
    tallies["caught earlier"] = len(mutations) - len(rest)
    print(f"{len(mutations)} mutations in {time.monotonic() - started:.0f} s: ", end="")
    print(", ".join(f"{count} {result}" for result, count in tallies.items() if count) + ".")
    return 1 if tallies[SURVIVED] or tallies[BROKEN] else 0


if __name__ == "__main__":
    sys.exit(main())
