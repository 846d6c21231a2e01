"""The guards in their order."""

from __future__ import annotations

from starlette.middleware import Middleware

from app.guards.hosts import Hosts
from app.guards.messages import Messages
from app.guards.uploads import Uploads


def middleware() -> list[Middleware]:
    """All guards, the outermost first."""
    return [Middleware(Hosts), Middleware(Uploads), Middleware(Messages)]
