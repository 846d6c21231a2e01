"""The app as a Hugging Face Space starts it: with the container's command, its variables, and those of a Space."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app_server import find_free_port, serve_with
from browser_tab import ROOT

HOST = "you-mergescope.hf.space"
SPACE = {"SPACE_ID": "you/mergescope", "SPACE_HOST": HOST, "SPACE_AUTHOR_NAME": "you", "SPACE_REPO_NAME": "mergescope"}
DOCKERFILES = ("Dockerfile", "docs/space/Dockerfile")


def read_last_stage() -> dict[str, list[str]]:
    """The instructions of the container's last stage, by their first words, as the lines in docs/space.md join them."""
    text = "".join((ROOT / name).read_text("utf-8") for name in DOCKERFILES)
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n", " ", text.rpartition("\nFROM ")[2]).splitlines()[1:]:
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest)
    return found


def read_variables() -> dict[str, str]:
    """The variables that the container sets."""
    words = [word for line in read_last_stage()["ENV"] for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


@contextmanager
def serve_space(folder: Path) -> Iterator[str]:
    """The address of the server on a Space. A test has its own port, its own Python, and ``folder`` for /tmp."""
    own = {name: re.sub(r"^/tmp", str(folder), value) for name, value in read_variables().items()}
    port = find_free_port()
    environment = own | SPACE | {"STREAMLIT_SERVER_PORT": str(port), "PATH": "/usr/bin:/bin"}
    python, *words = json.loads(read_last_stage()["CMD"][-1])
    assert python == "python"
    with serve_with([sys.executable, *words], environment, port, folder) as url:
        yield url
