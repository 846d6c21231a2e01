"""Guards the socket on which a browser sends its session's messages (``BackMsg``) to Streamlit.

A text frame, or bytes that are not such a message, close it. Messages that clear caches which other sessions share, or
that prepare a forbidden upload, are dropped. An event is what the server and the app exchange, such as a frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.runtime.runtime_util import get_max_widget_state_size_bytes

from app import permissions
from app.guards import uploads
from merging.base.errors import ModeError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.types import Message as Event

UNSUPPORTED_DATA_CODE, PROTOCOL_ERROR_CODE = 1003, 1002  # they close a socket
# Kinds of messages; the second one asks for the addresses to which files are uploaded.
CLEAR_CACHE, FILE_URLS = "clear_cache", "file_urls_request"


class MessageGuard:
    """Drops messages that this server refuses, and closes sockets that send anything but messages."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass messages on in both directions."""
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        is_closed = False

        async def receive_accepted() -> Event:
            nonlocal is_closed
            while True:
                event = await receive()
                if event["type"] != "websocket.receive":
                    return event
                raw = event.get("bytes")  # None for a text frame
                if (kind := None if raw is None else message_kind(raw)) is None:
                    is_closed, code = True, UNSUPPORTED_DATA_CODE if raw is None else PROTOCOL_ERROR_CODE
                    await send({"type": "websocket.close", "code": code})
                    return {"type": "websocket.disconnect", "code": code}
                if not is_refused(kind):
                    return event

        async def send_if_open(event: Event) -> None:
            if is_closed:
                raise OSError("The socket is closed.")  # as a server raises it after the visitor has left
            await send(event)

        await self.app(scope, receive_accepted, send_if_open)


def message_kind(raw: bytes) -> str | None:
    """The kind of a message, None if it is not a message.

    It is empty if Streamlit itself refuses the message as too large: the guard then passes it on.
    """
    if len(raw) > get_max_widget_state_size_bytes():
        return ""
    try:
        return BackMsg.FromString(raw).WhichOneof("type") or ""
    except DecodeError:
        return None


def is_refused(kind: str) -> bool:
    """Whether the server ignores messages of this kind: they would clear shared caches, or upload files."""
    return (kind == CLEAR_CACHE and has_others()) or (kind == FILE_URLS and not uploads.are_allowed())


def has_others() -> bool:
    """Whether several people share the server; True in an unknown mode."""
    try:
        return permissions.has_others()
    except ModeError:
        return True
