"""A server for others: what it checks before it starts, and what it says to its host and to no other."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from app_server import serve

from app import page_times, status
from merging.base import modes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("client", "headers", "local"),
    [
        ("127.0.0.1", {"host": "localhost:8501"}, True),
        ("::1", {"host": "[::1]:8501"}, True),
        ("127.0.0.1", {"host": "class.example.org"}, False),  # by the name that a proxy has passed on
        ("127.0.0.1", {"host": "localhost", "x-forwarded-for": "10.0.0.3"}, False),
        ("10.0.0.3", {"host": "localhost"}, False),
        ("", {}, False),
    ],
)
def test_only_the_host_of_a_server_is_told_its_state(client, headers, local):
    assert status.is_local(client, headers) is local


def test_times_are_kept_by_page():
    page_times.forget_times()
    for seconds in (0.1, 0.2, 0.9):
        page_times.note_time("masks", seconds)
    page_times.note_time("", 1.5)
    assert page_times.slow_pages()[1] == {"page": "masks", "drawn": 3, "median": 0.2, "p95": 0.9, "max": 0.9}
    assert page_times.slow_pages()[0]["page"] == "home"


def test_a_server_starts_says_its_state_and_ends(library, tmp_path):
    with serve(library, tmp_path, {modes.MODE_VARIABLE: "class"}, entry="app/serve.py") as url:
        with urllib.request.urlopen(f"{url}/status", timeout=30) as answer:
            said = json.load(answer)
        assert (said["mode"], said["sessions"], said["queue"]["running"]) == ("class", 0, 0)
        assert said["memory"]["server"] > 10**7
        assert "class mode" in status.read_status(int(url.rpartition(":")[2]))
        passed_on = urllib.request.Request(f"{url}/status", headers={"X-Forwarded-For": "10.0.0.3"})
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(passed_on, timeout=30)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        (modes.MODE_VARIABLE, "lecture", "expected one of full, class, read"),
        ("MERGESCOPE_BENCHMARK", "/", "no tasks.json"),
    ],
)
def test_wrong_settings_are_an_error_at_the_start(setting, value, words, tmp_path, monkeypatch):
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path))
    monkeypatch.setenv(setting, value)
    command = [sys.executable, "-m", "app.serve"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2 and words in ended.stderr


def test_the_container_holds_what_runs_and_nothing_else():
    copied = (ROOT / ".dockerignore").read_text("utf-8").split()
    names = [name.removeprefix("!") for name in copied if name.startswith("!")]
    assert copied[0] == "*" and all((ROOT / name).exists() for name in names)
    made = (ROOT / "Dockerfile").read_text("utf-8")
    assert "USER 1000" in made and "STOPSIGNAL SIGTERM" in made and "HEALTHCHECK" in made
    pinned = (ROOT / "requirements-container.txt").read_text("utf-8")
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    torch = next(line for line in lines if line.startswith("torch="))
    assert f"torch-{torch.removeprefix('torch==')}%2Bcpu" in pinned and "--hash=sha256:" in pinned
    services = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    assert all(one["read_only"] and one["cap_drop"] == ["ALL"] for one in services.values())
    assert services["proxy"]["ports"] == ["127.0.0.1:8080:8080"]
