"""The command ``workers``: which jobs of a store compute now, and on how many workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merging.base.files.processes import this_process
from merging.cli.main import main
from merging.study.runs.run_store import Store
from merging.tasks.queue.job_records import JobFiles, State


def computing(store: Store, subject: str, title: str, event: object, state: State = State.RUNNING) -> None:
    """A job of a server that is this process."""
    files = JobFiles(store.root / "jobs", f"sweep-{subject}")
    files.create("", title=title, base=Path("/"), subject=subject, kind="sweep")
    files.update(state=state, worker=this_process())
    (files.folder / "events.jsonl").write_text(json.dumps(event) + "\n", "utf-8")


def test_it_lists_the_jobs_that_compute_now(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["workers", "--workers", "", "--store", str(store.root)]
    assert main(command) == 0
    assert "No job of this store is running." in capsys.readouterr().out
    first = {"phase": "Point 3 of 12, on 3 workers, 1 lost", "fraction": 0.25, "seconds_left": 12.0}
    computing(store, "a" * 12, "Ratios\x1b[2J", first)
    computing(store, "b" * 12, "Depths", {"phase": "Merging", "fraction": 0.5, "seconds_left": None})
    computing(store, "c" * 12, "Yesterday's", first, State.PAUSED)
    assert main(command) == 0
    table = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table[-3:]]
    assert rows[0] == ["job", "now", "left"] and rows[2] == ["Depths", "Merging"]
    assert rows[1][1:] == ["Point 3 of 12, on 3 workers, 1 lost", "about 12 s"] and "\x1b" not in table[-2]
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["workers"] == [] and [job["title"] for job in said["jobs"]] == ["Depths", "Ratios\x1b[2J"]
