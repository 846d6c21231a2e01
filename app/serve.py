"""The app as a server for others: it checks its settings first, serves /status to its host, and stops jobs at its end.

    python -m app.serve

The environment has all settings: MERGESCOPE_MODE, MERGESCOPE_BENCHMARK, MERGESCOPE_STORE, MERGESCOPE_LESSONS,
MERGESCOPE_PACKS (results that others packed), MERGESCOPE_FRAMES (which pages may show the app in a frame), and
Streamlit's own, such as STREAMLIT_SERVER_PORT. A Hugging Face Space adds SPACE_HOST, see docs/space.md.
Under ``streamlit run`` the app has no /status.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Streamlit puts this folder on the path; the packages are in its parent folder, before all others of these names.
if (root := str(Path(__file__).resolve().parent.parent)) != sys.path[0]:
    sys.path[:] = [root, *(folder for folder in sys.path if folder != root)]

from starlette.middleware import Middleware
from starlette.routing import Route
from streamlit.starlette import App

from app import startup
from app.guards import frames, stack
from merging.base import modes, settings
from merging.base.errors import MergingError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MAIN_FILE = Path(__file__).with_name("main.py")
DEFAULT_ADDRESS = {"ADDRESS": "127.0.0.1", "PORT": "8501"}  # of the server, unless the environment sets others
BROWSER_VARIABLE = "STREAMLIT_BROWSER_SERVER_ADDRESS"
SPACE_VARIABLE = "SPACE_HOST"  # the names of a Hugging Face Space, which it sets, separated by commas


def settings_problem() -> str:
    """The problem of the settings, in a sentence; empty if there is none."""
    try:
        modes.server_mode()
        frames.frame_policy()
        settings.max_running_jobs()
        root = settings.store_root()
        settings.check_benchmark()
        if modes.server_mode() != modes.Mode.READ:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except MergingError as error:
        return str(error)
    except OSError as error:
        return f"The folder of runs cannot be made: {error}. Set MERGESCOPE_STORE to a writable folder."
    return ""


def _allow_space_host() -> None:
    """On a Hugging Face Space, answer requests to its name, unless the environment sets the allowed hosts."""
    if names := os.environ.get(SPACE_VARIABLE, "").replace(",", " ").split():
        os.environ.setdefault("STREAMLIT_SERVER_ALLOWED_HOSTS", " ".join(["localhost", "127.0.0.1", *names]))
        if os.environ.get(BROWSER_VARIABLE, "localhost") == "localhost":  # as the container sets it
            os.environ[BROWSER_VARIABLE] = names[0]


@asynccontextmanager
async def serve_lifespan(_app: Any) -> AsyncIterator[None]:
    """Active while the server runs; at its end, stop the running job, which stores its progress if it can."""
    startup.load_first_modules()
    yield
    startup.end_preparing()
    from app.reading import page_data, previews

    previews.preview_process().close()
    page_data.job_queue().close()


async def _answer_status(request: Request) -> Response:
    from app import status  # loads caches, which need the running server

    return await status.answer_status(request)


def main() -> int:
    """Serve until a signal stops the process; returns an exit code only if the settings are wrong."""
    if problem := settings_problem():
        print(f"Mergescope cannot be served: {problem}", file=sys.stderr)
        return 2
    if os.environ.get(settings.PACKS_VARIABLE):
        from merging.sharing.packs.open_packs import open_for_server  # loads torch

        try:
            open_for_server()
        except MergingError as error:
            print(f"Mergescope cannot be served: {error}", file=sys.stderr)
            return 2
    _allow_space_host()
    host, port = (os.environ.get(f"STREAMLIT_SERVER_{name}", value) for name, value in DEFAULT_ADDRESS.items())
    print(f"Serving Mergescope at http://{host}:{port} (stop with Ctrl-C).", flush=True)
    # -P: the folder in which the user is does not come on the path.
    command = [sys.executable, "-P", "-m", "streamlit", "run", __file__, "--server.headless", "true"]
    os.execv(sys.executable, command)  # Streamlit's command reads its settings from the environment


app = App(
    MAIN_FILE,
    lifespan=serve_lifespan,
    routes=[Route("/status", _answer_status)],
    middleware=[Middleware(frames.FrameHeader), *stack.middleware()],
)

if __name__ == "__main__":
    sys.exit(main())
