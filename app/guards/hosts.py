"""Limits the host names under which the server answers to those of Streamlit's ``server.allowedHosts``.

A foreign page can reach this machine under the page's own name (DNS rebinding), and must receive nothing: no page, file
or socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

FOREIGN_HOST = "This host name is not allowed. The operator can add it to STREAMLIT_SERVER_ALLOWED_HOSTS.\n"
POLICY_VIOLATION_CODE = 1008  # closes a socket


class HostGuard:
    """Refuses requests and sockets that name another host than this one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "lifespan" or names_this_server(Headers(scope=scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION_CODE})
        else:
            await PlainTextResponse(FOREIGN_HOST, 403)(scope, receive, send)


def names_this_server(headers: Headers) -> bool:
    """Whether a request has exactly one host name, and it is this server's."""
    names = headers.getlist("host")
    return is_host_allowed(names[0] if len(names) == 1 else None)
