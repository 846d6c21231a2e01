"""The header that tells browsers which pages may show the app in a frame; only ``app.serve`` sends it.

Streamlit itself sends no such header: under ``streamlit run app/main.py`` any page may, unless a proxy adds the header.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from merging.base.errors import MergingError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

FRAMES_SETTING = "MERGESCOPE_FRAMES"
# Slides and course pages on the same machine.
LOCAL_ORIGINS = ("'self'", "http://localhost:*", "http://127.0.0.1:*", "file:")
ORIGIN = re.compile(r"https?://(\*\.)?[A-Za-z0-9.-]+(:(\d{1,5}|\*))?")
WRONG_ORIGIN = (
    "{} names {!r}, which is not an origin. Expected origins separated by spaces, such as https://course.example.edu, "
    "or * for every page, or none for no page."
)


def frame_policy() -> str:
    """The header's value. Raises MergingError if the setting contains anything but origins."""
    origins = os.environ.get(FRAMES_SETTING, "").replace(",", " ").split()
    if origins == ["*"]:
        return "frame-ancestors *"
    if origins == ["none"]:
        return "frame-ancestors 'none'"
    for origin in origins:
        if not ORIGIN.fullmatch(origin):
            raise MergingError(WRONG_ORIGIN.format(FRAMES_SETTING, origin))
    return f"frame-ancestors {' '.join([*LOCAL_ORIGINS, *origins])}"


class FrameHeader:
    """Adds the header to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.header = (b"content-security-policy", frame_policy().encode("ascii"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), self.header]
            await send(message)

        await self.app(scope, receive, send_with_header if scope["type"] == "http" else send)
