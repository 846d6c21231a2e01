"""The tray of jobs: a finished measurement links to the page that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from app.session import pages
from app.widgets import page, tray
from merging.jobs.records import Job, job_of


@pytest.mark.parametrize("measurement", tray.RESULT_PAGES)
def test_a_measurement_of_conflicts_links_to_its_view(measurement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    links: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(page, "open_page", lambda path, label, icon, **query: links.append((path, query)))
    tray.open_measurement(
        Job(job_of(measurement, "0123456789ab"), "Measuring", "done", kind=measurement, subject="0123456789ab")
    )
    path, query = tray.RESULT_PAGES[measurement]
    assert links == [(path, {"run": "0123456789ab", **query})]
    assert path == pages.CONFLICTS
