"""No input makes a reader fail in another way than with an error of the package, or act on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fuzzed_readers
import pytest

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "tests" / "bench" / "fuzz.py"
RUNS = 400  # inputs for each reader, after the corpus
ACTS = ["raise KeyError", "open('elsewhere', 'w')", "import this", "sys.modules['os'].system('')"]
PLANTED = """
import sys, fuzz, fuzzed_readers
def planted(data):
    if len(data) > 4:
        {act}
fuzzed_readers.READERS = {{"planted": fuzzed_readers.Reader(planted, lambda: [b"na"])}}
sys.exit(fuzz.main())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fuzzed_readers, "FOLDER", tmp_path)
    yield


@pytest.mark.parametrize("name", fuzzed_readers.READERS)
def test_a_reader_reads_or_refuses_every_input_of_the_corpus(name: str) -> None:
    for data in fuzzed_readers.inputs(name):
        fuzzed_readers.read(name, data)


@pytest.mark.parametrize("name", fuzzed_readers.READERS)
def test_the_corpus_begins_with_inputs_that_are_read(name: str) -> None:
    """Otherwise changes of them would be refused at the door."""
    assert fuzzed_readers.read(name, fuzzed_readers.READERS[name].seeds()[0])


def test_the_corpus_is_small() -> None:
    assert fuzzed_readers.CORPUS.stat().st_size < 300_000


def fuzzed(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("atheris", reason="the fuzzer has no build for this platform")
    path = os.pathsep.join(str(ROOT / folder) for folder in ("", "tests/support", "tests/bench"))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_a_bounded_run_guided_by_coverage_finds_nothing(tmp_path: Path) -> None:
    run = fuzzed(tmp_path, str(FUZZ), "--runs", str(RUNS))
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stderr.count("Done ") == len(fuzzed_readers.READERS)
    assert "0 of" not in run.stdout


@pytest.mark.full
@pytest.mark.parametrize("act", ACTS)
def test_the_fuzzer_finds_what_is_planted(act: str, tmp_path: Path) -> None:
    run = fuzzed(tmp_path, "-c", PLANTED.format(act=act), "--runs", "20000")
    assert run.returncode == 1 and "0 of 1 readers hold" in run.stdout, run.stderr[-3000:]
