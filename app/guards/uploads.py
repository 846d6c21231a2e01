"""Limits uploads, which Streamlit stores in memory: none where they are not allowed, otherwise a bounded total."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from streamlit import config, runtime

from app import permissions
from merging.base.errors import ModeError
from merging.base.modes import VisitorAction

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

UPLOAD_PATH = "/_stcore/upload_file/"  # followed by session and file; a server may have a base path before it
# How many of the largest files (server.maxUploadSize) may be in memory at a time.
MAX_SESSION_FILES, MAX_TOTAL_FILES = 2, 4
NO_UPLOADS = "This server takes no uploads.\n"
NO_LENGTH = "An upload must state its length.\n"
NO_ROOM = "There is no room for this file: {}. Remove other uploads, or try again in a few minutes.\n"


class UploadGuard:
    """Refuses files before reading a byte of them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._arriving_bytes: Counter[str] = Counter()  # of files in transfer, by session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "PUT" or UPLOAD_PATH not in scope["path"]:
            await self.app(scope, receive, send)
            return
        session, size = scope["path"].rpartition(UPLOAD_PATH)[2].partition("/")[0], stated_length(Headers(scope=scope))
        if (refusal := self._refuse_upload(session, size)) is not None:
            refusal.headers["connection"] = "close"  # otherwise the server would read the body
            await refusal(scope, receive, send)
            return
        self._arriving_bytes[session] += size
        try:
            await self.app(scope, receive, send)
        finally:
            self._arriving_bytes[session] -= size
            self._arriving_bytes += Counter()  # forget sessions without files

    def _refuse_upload(self, session: str, size: int) -> Response | None:
        """The answer to a refused file of ``size`` bytes (negative if not stated); None for an accepted file."""
        if not are_allowed():
            return PlainTextResponse(NO_UPLOADS, 403)
        if size < 0:
            return PlainTextResponse(NO_LENGTH, 411)
        in_memory, largest = bytes_in_memory() + self._arriving_bytes, config.get_option("server.maxUploadSize") * 2**20
        if in_memory[session] + size > MAX_SESSION_FILES * largest:
            return PlainTextResponse(NO_ROOM.format("this session has too many"), 413)
        if in_memory.total() + size > MAX_TOTAL_FILES * largest:
            return PlainTextResponse(NO_ROOM.format("all sessions together have too many"), 413)
        return None


def are_allowed() -> bool:
    """Whether visitors may upload files; False in an unknown mode."""
    try:
        return permissions.is_allowed(VisitorAction.UPLOAD)
    except ModeError:
        return False


def stated_length(headers: Headers) -> int:
    """The stated size of a request's body in bytes; -1 if it is not stated."""
    length_text = headers.get("content-length", "")
    return int(length_text) if length_text.isdecimal() and "transfer-encoding" not in headers else -1


def bytes_in_memory() -> Counter[str]:
    """The bytes of files that Streamlit has in memory, by session."""
    sessions = runtime.get_instance().uploaded_file_mgr.file_storage.copy()  # others may add to it meanwhile
    return Counter({name: sum(len(file.data) for file in files.copy().values()) for name, files in sessions.items()})
