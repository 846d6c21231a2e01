"""The state of a server for its host, at /status: sessions, queue, previews, memory, slow pages; no content."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psutil

from app import page_times
from app.reading import page_data, previews
from merging.base import modes
from merging.base.free_memory import free_memory
from merging.base.text import duration_text, size_text
from merging.base.version import __version__
from merging.tasks.queue.job_records import State
from merging.tasks.workers.certificates import is_this_machine

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")  # that proxies add
SESSIONS_STAT = "active_sessions"  # name of Streamlit's own count of sessions
PLAIN_TYPE = "text/plain"


def is_local(client: str, headers: Mapping[str, str]) -> bool:
    """Whether a request comes directly from this machine, not through a proxy on it."""
    host = headers.get("host", "").rsplit(":", 1)[0].strip("[]")
    return is_this_machine(client) and is_this_machine(host) and not any(name in headers for name in PROXY_HEADERS)


async def answer_status(request: Request) -> Response:
    """The route: text if the request prefers it, else JSON; 404 for requests from other machines."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse, PlainTextResponse

    client = request.client.host if request.client is not None else ""
    if not is_local(client, request.headers):
        return PlainTextResponse("Not found", 404)
    state = await run_in_threadpool(server_status)
    if PLAIN_TYPE in request.headers.get("accept", ""):
        return PlainTextResponse(status_in_words(state))
    return JSONResponse(state)


def server_status() -> dict[str, Any]:
    """The data of /status."""
    process = psutil.Process()
    queue = page_data.job_queue()
    live = [job for job in queue.list_jobs() if job.is_live]
    preview_pid = previews.preview_process().pid
    return {
        "version": __version__,
        "mode": str(modes.server_mode()),
        "seconds_up": round(time.time() - process.create_time()),
        "sessions": open_sessions(),
        "queue": {
            "running": sum(job.state == State.RUNNING for job in live),
            "waiting": sum(job.state == State.QUEUED for job in live),
            "longest_wait": round(max((job.seconds_until_start or 0.0 for job in live), default=0.0)),
        },
        # the process of previews, under an older name
        "bench": {"running": bool(preview_pid), "waiting": previews.preview_process().waiting_count},
        "memory": {
            "server": process.memory_info().rss,
            "children": sum(_read_resident_bytes(child) for child in process.children(recursive=True)),
            "free": free_memory(),
        },
        "load": os.getloadavg()[0],
        "pages": page_times.slow_pages(),
    }


def open_sessions() -> int:
    """Open sessions, which are tabs rather than people."""
    from streamlit import runtime

    if not runtime.exists():
        return 0
    stats = runtime.get_instance().stats_mgr.get_stats([SESSIONS_STAT])
    return sum(int(getattr(stat, "value", 0)) for stat in stats.get(SESSIONS_STAT, ()))


def status_in_words(state: Mapping[str, Any]) -> str:
    """The data of /status as text for a terminal."""
    queue, bench, memory = state["queue"], state["bench"], state["memory"]
    lines = [
        f"Mergescope {state['version']}, {state['mode']} mode, up for {duration_text(state['seconds_up'])}",
        f"sessions  {state['sessions']}",
        f"queue     {queue['running']} running, {queue['waiting']} waiting, at most {queue['longest_wait']} s more",
        f"bench     {'running' if bench['running'] else 'not running'}, {bench['waiting']} requests",
        f"memory    {size_text(memory['server'])} server, {size_text(memory['children'])} its processes, "
        f"{size_text(memory['free'])} free",
        f"load      {state['load']:.2f}",
    ]
    lines += [f"{row['page']:<10}{row['median']} s median, {row['p95']} s p95" for row in state["pages"]]
    return "\n".join(lines) + "\n"


def _read_resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def read_status(port: int) -> str:
    """The status of a server on this machine, as text. Raises OSError if it does not answer."""
    from urllib.request import Request, urlopen

    request = Request(f"http://127.0.0.1:{port}/status", headers={"Accept": PLAIN_TYPE})
    with urlopen(request, timeout=10) as response:
        return str(response.read(1 << 16).decode())


if __name__ == "__main__":
    print(read_status(int(os.environ.get("STREAMLIT_SERVER_PORT", "8501"))), end="")
