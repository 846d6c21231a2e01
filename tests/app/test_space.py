"""The container on a Hugging Face Space: its mode, its hosts, what it writes, and which pages may frame it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
import space
import yaml
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app import serve

ROOT = Path(__file__).resolve().parents[2]


def ask(url: str, host: str) -> tuple[int, str]:
    """The status and the header about frames of an answer to a request under a name."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host}), timeout=30) as answer:
            return answer.status, answer.headers["Content-Security-Policy"]
    except HTTPError as error:
        return error.code, error.headers["Content-Security-Policy"]


def opens_socket(url: str, host: str, origin: str) -> bool:
    """Whether the server lets a page of an origin open a session."""

    async def knock() -> bool:
        address = f"ws://{host}/_stcore/stream"
        port = int(url.rpartition(":")[2])
        try:
            async with connect(address, host="127.0.0.1", port=port, origin=origin, subprotocols=["streamlit"]):  # type: ignore[arg-type, list-item]
                return True
        except InvalidStatus:
            return False

    return asyncio.run(knock())


@pytest.mark.full
def test_a_space_serves_a_class_under_its_own_name(tmp_path: Path) -> None:
    with space.serve_space(tmp_path) as url:
        with urllib.request.urlopen(f"{url}/status", timeout=30) as answer:
            assert json.load(answer)["mode"] == "class"
        for name, code in {space.HOST: 200, "localhost": 200, "other.hf.space": 403, "huggingface.co": 403}.items():
            status, frames = ask(url, name)
            assert status == code
            assert {"https://huggingface.co", "'self'"} < set(frames.split()) and "*" not in frames.split()
            assert opens_socket(url, name, f"https://{name}") is (code == 200)
        assert not opens_socket(url, space.HOST, "https://other.hf.space")
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "log.txt", ".streamlit", ".cache"}


def test_the_host_of_a_space_is_allowed_unless_the_environment_names_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setattr(serve, "settings_problem", lambda: "")
    monkeypatch.setattr(serve.os, "execv", lambda *command: started.append(dict(serve.os.environ)))
    hosts, address = "STREAMLIT_SERVER_ALLOWED_HOSTS", "STREAMLIT_BROWSER_SERVER_ADDRESS"
    for name in (hosts, address, serve.SPACE_VARIABLE):
        monkeypatch.setenv(name, "")  # set, so that the end of the test restores them
        monkeypatch.delenv(name)
    serve.main()
    monkeypatch.setenv(serve.SPACE_VARIABLE, "a.hf.space,b.example.org")
    serve.main()
    monkeypatch.setenv(hosts, "c.example.org")
    serve.main()
    assert [(one.get(hosts), one.get(address)) for one in started] == [
        (None, None),
        ("localhost 127.0.0.1 a.hf.space b.example.org", "a.hf.space"),
        ("c.example.org", "a.hf.space"),
    ]


def test_the_files_of_a_space_fit_the_container() -> None:
    _, front, _ = (ROOT / "docs/space/README.md").read_text("utf-8").split("---\n", 2)
    stated, variables, stage = yaml.safe_load(front), space.read_variables(), space.read_last_stage()
    assert stated["sdk"] == "docker" and str(stated["app_port"]) == variables["STREAMLIT_SERVER_PORT"]
    assert stated["license"] == "mit" and len(stated["short_description"]) <= 60 and len(stated["emoji"]) == 1
    assert stage["USER"] == ["1000:1000"] and variables["MERGESCOPE_MODE"] == "class"
    assert all(variables[name].startswith("/tmp") for name in ("HOME", "MERGESCOPE_STORE"))
    lines = (ROOT / "docs/space.md").read_text("utf-8").partition("```bash")[2].partition("```")[0].splitlines()[1:]
    assert len(lines) == 6
    for name in ("docs/space/README.md", "docs/space/Dockerfile"):
        assert any(name in line for line in lines)
