"""The modules that the app loads in the background: every name resolves, and a wrong one is an error in the log."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

import pytest
from streamlit import config
from streamlit.web import skills

from app import startup


@pytest.mark.parametrize("name", startup.SLOW)
def test_every_slow_module_exists(name: str) -> None:
    assert importlib.util.find_spec(name) is not None


def test_a_wrong_name_is_an_error_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(startup, "SLOW", ("merging.no_such_module", "json"))
    with caplog.at_level(logging.WARNING, logger=startup.log.name):
        startup.load_slow()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "merging.no_such_module" in caplog.text


def test_no_popup_of_streamlit_covers_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a coding agent is installed, it would offer, over every page of a new visitor, to install skills."""
    monkeypatch.setattr(skills, "agent_harness_present", lambda: True)
    monkeypatch.setattr(skills, "_nudge_dismissed_marker_path", lambda: Path("/nowhere"))
    before = config.get_option("server.headless")
    config.set_option("server.headless", False)
    try:
        assert skills.nudge_suppression_reason(str(Path(startup.__file__).parent)) == "welcome_hidden"
    finally:
        config.set_option("server.headless", before)
