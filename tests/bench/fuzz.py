"""Fuzz every reader of files and texts from outside, guided by the coverage of merging/.

    python tests/bench/fuzz.py [READER ...] [--seconds 600] [--runs N] [--corpus FOLDER] [--keep]

A reader may refuse its input with an error of the package. Anything else ends the run, with the input that did it:
another exception, more than 10 seconds or 2 GB, a started program, a connection, an imported module, a file written
elsewhere. Inputs that reach new lines are written to the corpus, where the next run begins; with --keep, all of that
folder replaces the corpus that the tests read.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import atheris  # noqa: E402 - it instruments what is imported after it

with atheris.instrument_imports(include=["merging"]):
    import fuzzed_readers

LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=8192", "-len_control=0", "-print_final_stats=1"]
FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "shutil.rmtree")
MOST_KEPT = 60  # inputs of a reader in the corpus of the tests
CODECS = "encodings"  # a text codec that a file names may be looked up


def main() -> int:
    """Fuzz the readers one after the other; 1 if one of them failed."""
    options = _options()
    failed = [name for name in options.readers if not _fuzzed(name, options)]
    if options.keep:
        _keep(options.corpus)
    print(f"{len(options.readers) - len(failed)} of {len(options.readers)} readers hold." + " ".join(["", *failed]))
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(fuzzed_readers.READERS)}")
    parser.add_argument("--seconds", type=int, default=600, help="for each reader (default: 600)")
    parser.add_argument("--runs", type=int, default=-1, help="inputs for each reader, instead of seconds")
    parser.add_argument("--corpus", type=Path, help="where inputs that reach new lines are kept")
    parser.add_argument("--keep", action="store_true", help="replace tests/fuzz/corpus.zip by the corpus")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.readers) - set(fuzzed_readers.READERS):
        parser.error(f"no reader is called {', '.join(sorted(unknown))}")
    if options.keep and not options.corpus:
        parser.error("--keep needs --corpus")
    options.readers = options.readers or list(fuzzed_readers.READERS)
    return options


def _fuzzed(name: str, options: argparse.Namespace) -> bool:
    """Whether a reader holds. It runs in a process of its own, because the fuzzer ends its process."""
    child = os.fork()
    if child == 0:
        _run(name, options)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _run(name: str, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch, corpus = Path(folder) / "files", (options.corpus or Path(folder)) / name
        for made in (scratch, corpus):
            made.mkdir(parents=True, exist_ok=True)
        for data in fuzzed_readers.inputs(name):
            (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        fuzzed_readers.FOLDER = scratch
        bound = f"-runs={options.runs}" if options.runs >= 0 else f"-max_total_time={options.seconds}"
        artifacts = Path.cwd() / f"fuzz-{name}-"
        print(f"--- {name}", flush=True)
        arguments = [sys.argv[0], *LIMITS, bound, f"-seed={options.seed}", f"-artifact_prefix={artifacts}", str(corpus)]
        atheris.Setup(arguments, _guarded(name, corpus, scratch))
        atheris.Fuzz()


def _keep(corpus: Path) -> None:
    """Pack the shortest inputs of every reader; the same inputs give the same file."""
    with zipfile.ZipFile(fuzzed_readers.CORPUS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in fuzzed_readers.READERS:
            inputs = sorted(
                {path.read_bytes() for path in (corpus / name).glob("*")}, key=lambda data: (len(data), data)
            )
            for number, data in enumerate(inputs[:MOST_KEPT]):
                archive.writestr(zipfile.ZipInfo(f"{name}/{number}"), data)


def _guarded(name: str, corpus: Path, scratch: Path) -> Callable[[bytes], None]:
    """The reader, failing also where the input made it act on the machine."""
    for path in corpus.iterdir():  # imports what reading needs
        fuzzed_readers.read(name, path.read_bytes())
    acts: list[str] = []
    reading = False

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if not reading:
            return
        if event in FORBIDDEN:
            acts.append(f"{event} {args!r:.200}")
        elif event == "import" and args[0] not in sys.modules and not str(args[0]).startswith(CODECS):
            acts.append(f"import {args[0]}")
        elif event == "open" and _writes_outside(scratch, args[0], args[2]):
            acts.append(f"writes {args[0]}")

    def one(data: bytes) -> None:
        nonlocal reading
        reading = True
        try:
            fuzzed_readers.read(name, data)
        finally:
            reading = False
        if acts:
            raise AssertionError(f"the input made the reader act: {acts}")

    sys.addaudithook(watch)
    return one


def _writes_outside(scratch: Path, path: Any, flags: int) -> bool:
    """Whether opening a file means to write it, and it is none of the reader's."""
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    return writes and isinstance(path, str) and not Path(path).is_relative_to(scratch)


if __name__ == "__main__":
    sys.exit(main())
