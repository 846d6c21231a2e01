"""Access to the Hub by the library huggingface_hub: its host and token, and no telemetry or update checks."""

from __future__ import annotations

import importlib
import os
from typing import Any
from urllib.parse import urlsplit

from merging.base.errors import HubError
from merging.base.settings import HUB_VARIABLE
from merging.base.text import printable
from merging.models.hub.repository import Repository

OFF, CACHED = "off", "cached"
DEFAULT_ENDPOINT = "https://huggingface.co"
SILENCING_VARIABLES = ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_UPDATE_CHECK")


def blocked_by_setting() -> str:
    """The value of $MERGESCOPE_HUB: ``cached`` forbids downloads, ``off`` also the cache; empty if both are allowed."""
    setting = os.environ.get(HUB_VARIABLE, "").strip().casefold()
    return setting if setting in {OFF, CACHED} else ""


def require_hub_access(name: str) -> None:
    """Raise HubError if a setting forbids contacting the Hub; ``name`` is the requested repository or file."""
    if setting := blocked_by_setting():
        raise HubError(
            f"{printable(name)} is on {host()}, which is not contacted here ({HUB_VARIABLE}={setting}); download it "
            "and give its path.",
            "setting",
        )


def endpoint() -> str:
    """The address of the Hub: $HF_ENDPOINT, else the usual one."""
    return (os.environ.get("HF_ENDPOINT", "").strip() or DEFAULT_ENDPOINT).rstrip("/")


def _endpoint_without_login() -> str:
    """The address of the Hub without a user's name and password."""
    scheme, mark, address = endpoint().rpartition("://")
    return scheme + mark + address.rpartition("@")[2]


def host() -> str:
    """The host of the Hub, for messages."""
    return urlsplit(_endpoint_without_login()).netloc or _endpoint_without_login()


def page_url(repository: Repository) -> str:
    """The address of a repository's page, where its terms are accepted."""
    return f"{_endpoint_without_login()}/{'datasets/' if repository.kind == 'dataset' else ''}{repository.name}"


def load_library() -> Any:
    """The package huggingface_hub, with telemetry and update checks off.

    Raises:
        HubError: the package is not installed.
    """
    for name in SILENCING_VARIABLES:
        os.environ.setdefault(name, "1")
    try:
        import huggingface_hub
        from huggingface_hub import constants
    except ImportError:
        raise HubError(
            f"Without huggingface_hub nothing is fetched from {host()}: `pip install huggingface_hub`, or download the "
            "files and give their path.",
            "setting",
        ) from None
    constants.HF_HUB_DISABLE_TELEMETRY = True  # the variable counts only at the first import
    return huggingface_hub


def load_utilities() -> Any:
    """The library's module for sessions, headers, and errors of responses."""
    load_library()
    return importlib.import_module("huggingface_hub.utils")


def has_token() -> bool:
    """Whether the library has a token to send."""
    return "authorization" in load_utilities().build_hf_headers()
