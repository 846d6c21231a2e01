"""The commands ``app`` and ``serve``: what they become, and what they say before."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import pytest

from merging.base import dependencies
from merging.cli import app_commands
from merging.cli.main import main


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that this process is asked to become."""
    found: list[list[str]] = []

    def note(program: str, words: list[str]) -> Any:
        assert program == words[0] == sys.executable
        found.append(words[1:])
        sys.exit(0)

    monkeypatch.setattr(os, "execv", note)
    for name in (app_commands.PORT_VARIABLE, app_commands.HEADLESS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return found


def start(*words: str) -> None:
    with pytest.raises(SystemExit):
        raise SystemExit(main(words))


def chosen_port(words: list[str]) -> int:
    """The port of a command line, which the browser's address has, too."""
    server, browser = (words[words.index(f"--{name}") + 1] for name in ("server.port", "browser.serverPort"))
    assert server == browser
    return int(server)


def test_the_app_takes_the_next_free_port(become: list[list[str]], capsys: Any) -> None:
    with socket.socket() as busy:
        port = app_commands.FIRST_PORT
        while busy.connect_ex(("127.0.0.1", port)) == 0:  # another program listens there
            port += 1
        busy.close()
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", port))
            listening.listen()
            start("app", "--no-browser")
    (words,) = become
    assert words[:4] == ["-P", "-m", "streamlit", "run"] and words[4].endswith("app/main.py")
    assert words[words.index("--server.headless") + 1] == "true"
    chosen = chosen_port(words)
    assert chosen > port and f"http://127.0.0.1:{chosen} " in capsys.readouterr().out


def test_options_and_variables_say_the_port_and_the_browser(
    become: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("app", "--port", "9999")
    assert chosen_port(become[-1]) == 9999 and become[-1][-2:] == ["--server.headless", "false"]
    monkeypatch.setenv(app_commands.PORT_VARIABLE, "9000")
    monkeypatch.setenv(app_commands.HEADLESS_VARIABLE, "true")
    start("app")
    assert chosen_port(become[-1]) == 9000 and "--server.headless" not in become[-1]  # Streamlit reads the variable


def test_a_port_in_use_is_refused(become: list[list[str]], capsys: Any) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert main(["app", "--port", str(port)]) == 1
    assert capsys.readouterr().err.startswith(f"Port {port} is in use.") and become == []


def test_the_server_is_its_own_program(become: list[list[str]]) -> None:
    start("serve")
    assert len(become[0]) == 1 and become[0][0].endswith("app/serve.py")


@pytest.mark.parametrize("command", ["app", "serve"])
def test_a_package_out_of_range_is_named_before(
    command: str, become: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    sentence = "Mergescope needs streamlit 1.67 or newer, but 1.40.0 is installed: pip install 'streamlit<2,>=1.67'"
    monkeypatch.setattr(dependencies, "describe_wrong_dependencies", lambda: sentence)
    assert main([command]) == 1
    written = capsys.readouterr()
    assert written.err.strip() == sentence and written.out == "" and become == []
