"""The guards in their order."""

from __future__ import annotations

from starlette.middleware import Middleware

from app.guards.hosts import HostGuard
from app.guards.messages import MessageGuard
from app.guards.uploads import UploadGuard


def middleware() -> list[Middleware]:
    """All guards, the outermost first."""
    return [Middleware(HostGuard), Middleware(UploadGuard), Middleware(MessageGuard)]
