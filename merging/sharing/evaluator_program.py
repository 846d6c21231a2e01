"""The program that measures exported models: starting it, stopping it, and reading its output."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from merging.base import modes, settings
from merging.base.errors import EvaluatorError, MergingError
from merging.base.files.short_digest import short_digest
from merging.base.text import first_few, printable
from merging.study.score_files import MAX_BYTES
from merging.study.score_table import PROGRAM, ScoreTable, check_scores
from merging.tasks.context import QUIET, Context

SCORE_KEYS = ("task", "metric", "value", "n", "better", "split")
POLL_SECONDS, STOP_SECONDS = 0.1, 1.0  # between two polls of the program; until a stop is forced
QUOTED_CHARACTERS = 300  # characters of its stderr that an error quotes


@dataclass(frozen=True)
class Evaluator:
    """A program with its arguments; the folder to measure is added as the last argument."""

    command_words: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name on pages and in commands: its command line without the folders of paths."""
        return printable(" ".join(Path(word).name or word for word in self.command_words), 80)

    @property
    def command_digest(self) -> str:
        """The digest of its command line, twelve hexadecimal digits."""
        return short_digest(json.dumps(list(self.command_words)))

    def measure(self, folder: Path, context: Context = QUIET) -> ScoreTable:
        """The program's scores of an exported folder.

        Raises:
            EvaluatorError: the program cannot be started, fails, or prints anything except lines of scores.
            Cancelled: the caller cancelled; the program and all processes that it started are stopped.
        """
        meter = context.meter(1)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = self._start(folder, output, errors)
            try:
                while process.poll() is None:
                    meter.report_part(0, f"Measuring with {self.name}")
                    if os.fstat(output.fileno()).st_size > MAX_BYTES:
                        break
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=POLL_SECONDS)
            finally:
                _stop_group(process)
            output.seek(0)
            raw = output.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise EvaluatorError(
                    f"{self.name} printed more than 1 MB. It must print one line of JSON for each score."
                )
            if process.returncode:
                raise EvaluatorError(f"{self.name} ended with the code {process.returncode}.{_quote_last_line(errors)}")
        return parse_score_lines(raw, self.name)

    def _start(self, folder: Path, output: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start it in a process group of its own."""
        try:
            return subprocess.Popen(
                [*self.command_words, str(folder)], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise EvaluatorError(
                f"{self.name} cannot be started: {reason}. Correct {settings.EVALUATOR_VARIABLE}."
            ) from None


def find_evaluator() -> Evaluator | None:
    """The program that MERGESCOPE_EVALUATOR names; None if there is none, or if several people share the server.

    Raises:
        EvaluatorError: the variable is not a command line.
    """
    if modes.is_shared() or not (command_line := os.environ.get(settings.EVALUATOR_VARIABLE, "").strip()):
        return None
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise EvaluatorError(
            f"{settings.EVALUATOR_VARIABLE} is not a command line: {error}. Write it as in a shell: python my_eval.py."
        ) from None
    return Evaluator(tuple(words)) if words else None


def require_evaluator(reason: str) -> Evaluator:
    """The program that MERGESCOPE_EVALUATOR names. Raises EvaluatorError, beginning with ``reason``, without one."""
    if (program := find_evaluator()) is None:
        raise EvaluatorError(f"{reason} Start with MERGESCOPE_EVALUATOR='python my_eval.py'; see docs/evaluator.md.")
    return program


def parse_score_lines(raw: bytes, name: str) -> ScoreTable:
    """The scores in a program's output, one JSON object per line. Raises EvaluatorError, which names the wrong line."""
    try:
        return check_scores(_parse_rows(raw, name), PROGRAM, name)
    except MergingError as error:
        raise EvaluatorError(str(error)) from None


def _parse_rows(raw: bytes, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(raw.splitlines(), start=1):
        line_name = f"{name}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            got = printable(line[:40].decode("utf-8", "replace"), 40)
            raise EvaluatorError(f"{line_name} is not a JSON object; got {got!r}. Print other text on stderr.")
        if unknown_keys := [key for key in row if key not in SCORE_KEYS]:
            raise EvaluatorError(
                f"{line_name}: a score has only the keys {', '.join(SCORE_KEYS)}; got {first_few(unknown_keys)}."
            )
        for key in ("value", "n"):
            is_number = isinstance(row.get(key), int | float) and not isinstance(row[key], bool)
            if not is_number and not (key == "n" and row.get(key) is None):
                raise EvaluatorError(f"{line_name}: {key} is a number; got {printable(str(row.get(key)), 40)!r}.")
        yield line_name, row


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """Stop a program and all processes that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)


def _quote_last_line(errors: IO[bytes]) -> str:
    """The last line that a program printed on stderr, in a sentence; empty if it printed none."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 10 * QUOTED_CHARACTERS))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return f" Its last line: {printable(lines[-1].strip(), QUOTED_CHARACTERS)}" if lines else ""
