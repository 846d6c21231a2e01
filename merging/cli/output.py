"""The output of the command line: progress on stderr, events for a program, tables and JSON on stdout."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from merging.base.files.processes import this_process
from merging.base.progress import Progress, ProgressCallback, watch_progress
from merging.base.text import duration_text, percent_with_interval, printable
from merging.tasks.queue.events import CODE_KEY, ERROR_KEY, WORKER_KEY

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.image_draws import ImageDraw
    from merging.sharing.export.model_export import ExportResult
    from merging.study.score_table import Score

BAR_WIDTH, BAR_SECONDS, EVENT_SECONDS = 24, 0.1, 0.2
MAX_WARNING_CHARACTERS = 2000  # of one warning


class Bar:
    """A progress bar on a terminal. In a file it is one line for each new phase, and two lines for two that alternate.

    click's bar counts steps of equal length and estimates the time left from them. Here the work itself estimates it,
    over phases of different speed, and alternating phases do not fill a log.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._phase, self._last_time = "", 0.0
        self._printed_phases: deque[str] = deque(maxlen=2)

    def __call__(self, progress: Progress) -> None:
        """Show progress."""
        now = time.monotonic()
        if not self._is_terminal:
            if progress.phase not in self._printed_phases:
                print(progress.phase, file=self._stream, flush=True)
                self._printed_phases.append(progress.phase)
        elif now - self._last_time > BAR_SECONDS or progress.fraction == 1.0:
            filled = round(BAR_WIDTH * progress.fraction)
            time_left = f"  {duration_text(progress.seconds_left)} left" if progress.seconds_left is not None else ""
            text = f"{'█' * filled}{'·' * (BAR_WIDTH - filled)} {progress.fraction:4.0%}  {progress.phase}{time_left}"
            print(f"\r\x1b[2K{text}", end="", file=self._stream, flush=True)
            self._last_time = now
        self._phase = progress.phase

    def end(self) -> None:
        """Clear the bar's line."""
        if self._is_terminal and self._phase:
            print("\r\x1b[2K", end="", file=self._stream, flush=True)


def write_last_event(path: Path, code: int, error: str = "") -> None:
    """Append the exit code and the error to a file of events; a file that cannot be written is ignored."""
    event = {CODE_KEY: code} | ({ERROR_KEY: error} if error else {})
    with contextlib.suppress(OSError), path.open("ab+") as file:
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            file.write(b"\n")  # the last event is incomplete: the disk was full
        file.write(f"{encode_json(event, indent=None)}\n".encode())


class Events:
    """Appends progress to a file, one JSON object per line: at most five per second, and every change of phase.

    The first line identifies this process. Progress that cannot be written, as on a full disk, is omitted, and the
    work continues.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._phase, self._last_time = "", 0.0
        self._write({WORKER_KEY: asdict(this_process())})

    def __call__(self, progress: Progress) -> None:
        """Write progress, unless the last event was a moment ago."""
        now = time.monotonic()
        if progress.phase == self._phase and now - self._last_time < EVENT_SECONDS and progress.fraction < 1.0:
            return
        self._phase, self._last_time = progress.phase, now
        event = {"phase": progress.phase, "fraction": round(progress.fraction, 4), "detail": progress.detail}
        event["seconds_left"] = None if progress.seconds_left is None else round(progress.seconds_left, 1)
        self._write(event)

    def _write(self, event: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(encode_json(event, indent=None) + "\n")

    def end(self) -> None:
        """Do nothing: no file stays open."""


@contextlib.contextmanager
def report_progress(events: Path | None) -> Iterator[ProgressCallback]:
    """The callback that shows progress while the block runs: in a file of events, or as a bar."""
    display = Bar() if events is None else Events(events)
    try:
        with watch_progress(display):
            yield display
    finally:
        display.end()


def print_warning(sentence: str) -> None:
    """Print a warning on stderr, in place of the progress bar's line."""
    clear = "\r\x1b[2K" if sys.stderr.isatty() else ""
    print(f"{clear}Warning: {printable(sentence, MAX_WARNING_CHARACTERS)}", file=sys.stderr, flush=True)


def encode_json(data: Any, indent: int | None = 1) -> str:
    """Strict JSON: numbers that are not finite become null; characters that the console may lack are escaped."""
    unicode = (sys.stdout.encoding or "").casefold().replace("-", "") == "utf8"
    return json.dumps(_to_plain(data), indent=indent, allow_nan=False, ensure_ascii=not unicode)


def _to_plain(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _to_plain(value) for key, value in data.items()}
    if isinstance(data, str | bool | int | None):
        return data
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Sequence):
        return [_to_plain(value) for value in data]
    return _to_plain(data.item()) if hasattr(data, "item") else str(data)


def format_columns(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Rows of text in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(indent + line.rstrip() for line in lines)


def format_score_table(
    scores: pd.DataFrame, in_domain: Sequence[str] = (), sampled: Mapping[str, str] | None = None
) -> str:
    """Accuracies of the reporting split as a table; ``sampled`` describes the sampled images by task, if known."""
    rows = [("task", "", "accuracy [95 %]", "images")]
    for row in scores[scores["split"] == "reporting"].to_dict("records"):
        domain = "in domain" if row["task"] in in_domain else "out of domain" if in_domain else ""
        images = (sampled or {}).get(str(row["task"])) or str(row["n"])
        rows.append((str(row["task"]), domain, percent_with_interval(row["accuracy"], row["low"], row["high"]), images))
    return format_columns(rows)


def collect_draw_facts(draw: ImageDraw | None) -> dict[str, Any]:
    """The facts of the sampled images of a row of scores, for programs; empty if they are unknown."""
    return {} if draw is None else {"drawn": asdict(draw)}


def collect_export_facts(exported: ExportResult) -> dict[str, Any]:
    """The facts of an export, for programs."""
    return {
        "out": exported.folder,
        "to": exported.target_key,
        "files": exported.files,
        "export_warnings": exported.warnings,
        "export_notes": exported.missing_parts,
    }


def format_score(score: Score) -> str:
    """An imported score, which the benchmark did not measure, as a line of text."""
    split, count_text = f" {score.split}" if score.split else "", f" (n = {score.n})" if score.n else ""
    return f"  {score.task}{split}  {score.metric}  {score.value:g}{count_text}"
