"""Whether the Hub may be asked at all."""

from __future__ import annotations

from merging.errors import HubError
from merging.hub.client import host, switched_off
from merging.settings import HUB_SWITCH
from merging.text import printable


def require_on(name: str) -> None:
    """Raise HubError if a setting forbids to ask the Hub for what is called ``name``."""
    if setting := switched_off():
        raise HubError(
            f"{printable(name)} is on {host()}, which is not contacted here ({HUB_SWITCH}={setting}); download it and "
            "give its path.",
            "setting",
        )
