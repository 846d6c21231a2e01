"""The commands ``app`` and ``serve``, which become the server of the app."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from merging.base.settings import PACKS_VARIABLE
from merging.cli.option_types import PATH
from merging.cli.options import Command, option

APP_FOLDER = Path(__file__).resolve().parents[2] / "app"  # beside this package, in a checkout and where it is installed
ADDRESS = "127.0.0.1"
FIRST_PORT, LAST_PORT = 8501, 65535
ADDRESS_VARIABLE, PORT_VARIABLE = "STREAMLIT_SERVER_ADDRESS", "STREAMLIT_SERVER_PORT"
HEADLESS_VARIABLE = "STREAMLIT_SERVER_HEADLESS"


@click.command(cls=Command)
@option(
    "--port",
    type=click.IntRange(1, LAST_PORT),
    envvar=PORT_VARIABLE,
    help="the port; by default 8501 or the next free one",
)
@option("--open", "packs", type=PATH, multiple=True, metavar="FILE", help="a pack of results to look at (repeatable)")
@option("--no-browser", is_flag=True, help="open no browser")
def app(port: int | None, packs: tuple[Path, ...], no_browser: bool) -> int:
    """Open the app on this machine."""
    from merging.base.errors import MergingError

    opened = _open_packs(packs)
    port = port or _find_free_port()
    host = os.environ.get(ADDRESS_VARIABLE, ADDRESS)
    if not _is_free(port):
        raise MergingError(f"Port {port} is in use. Choose another one with --port, or leave it out.")
    # -P: the folder in which the user is does not come on the path, where it could hide a module.
    words = ["-P", "-m", "streamlit", "run", str(APP_FOLDER / "main.py"), "--server.port", str(port)]
    words += ["--browser.serverPort", str(port)]
    if no_browser or HEADLESS_VARIABLE not in os.environ:
        words += ["--server.headless", str(no_browser).lower()]
    return _become(words, f"{opened}Mergescope is at http://{host}:{port} (stop with Ctrl-C).\n")


def _open_packs(packs: Sequence[Path]) -> str:
    """Open the packs of the options and of the environment for the server; a line that says so, empty without any."""
    if not packs and not os.environ.get(PACKS_VARIABLE):
        return ""
    from merging.sharing.packs.open_packs import open_for_server
    from merging.tasks.pack_folders import RUNS, pack_name

    names = [pack_name(folder / RUNS / "run") for folder in open_for_server(packs)]
    return f"Opened, read-only: {', '.join(names)}.\n" if names else ""


@click.command(cls=Command)
def serve() -> int:
    """Serve the app to others; the environment has all settings."""
    return _become([str(APP_FOLDER / "serve.py")])


def _find_free_port() -> int:
    """The first port from 8501 on to which nothing listens, or 8501."""
    return next(filter(_is_free, range(FIRST_PORT, LAST_PORT + 1)), FIRST_PORT)


def _is_free(port: int) -> bool:
    """Whether no program listens to a port of this machine."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def _become(words: Sequence[str], note: str = "") -> int:
    """Print a note, and replace this process by Python with these arguments.

    Raises:
        MergingError: a package that the app needs is missing or out of range.
    """
    from merging.base.dependencies import describe_wrong_dependencies
    from merging.base.errors import MergingError

    if problem := describe_wrong_dependencies():
        raise MergingError(problem)
    print(note, end="", flush=True)
    os.execv(sys.executable, [sys.executable, *words])
