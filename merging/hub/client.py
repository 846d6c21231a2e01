"""The client library of the Hub, as it is used here: which host, which token, and nothing that was not asked for."""

from __future__ import annotations

import importlib
import os
from typing import Any
from urllib.parse import urlsplit

from merging.errors import HubError
from merging.hub.repository import Repository
from merging.settings import HUB_SWITCH

OFF, CACHED = "off", "cached"
PORTS = {"http": 80, "https": 443}
USUAL = "https://huggingface.co"
SILENT = ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_UPDATE_CHECK")


def switched_off() -> str:
    """What $MERGESCOPE_HUB forbids: ``cached`` downloads, ``off`` the cache too; empty if nothing."""
    setting = os.environ.get(HUB_SWITCH, "").strip().casefold()
    return setting if setting in {OFF, CACHED} else ""


def endpoint() -> str:
    """The address of the Hub: $HF_ENDPOINT, else the usual one."""
    return (os.environ.get("HF_ENDPOINT", "").strip() or USUAL).rstrip("/")


def _shown() -> str:
    """The address of the Hub without a user's name and password."""
    scheme, mark, rest = endpoint().rpartition("://")
    return scheme + mark + rest.rpartition("@")[2]


def host() -> str:
    """The host of the Hub, which sentences name."""
    return urlsplit(_shown()).netloc or _shown()


def page(repository: Repository) -> str:
    """The address of a repository's page, where its terms are accepted."""
    return f"{_shown()}/{'datasets/' if repository.kind == 'dataset' else ''}{repository.name}"


def library() -> Any:
    """The package huggingface_hub; it neither counts its use nor looks for updates.

    Raises:
        HubError: it is not installed.
    """
    for name in SILENT:
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
    constants.HF_HUB_DISABLE_TELEMETRY = True  # it was read when another package imported the library
    return huggingface_hub


def utilities() -> Any:
    """The library's session, headers and errors of answers."""
    library()
    return importlib.import_module("huggingface_hub.utils")


def headers(url: str) -> dict[str, str]:
    """The headers of a request: the token goes to the Hub's own host and port, and nowhere else."""
    return dict(utilities().build_hf_headers(token=None if is_own(url) else False)) | {"Accept-Encoding": "identity"}


def is_own(url: str) -> bool:
    """Whether an address is one of the Hub's own, not one of its storage; http may have become https there."""
    here, there = _origin(endpoint()), _origin(url)
    upgraded = here[0] == "http" and (here[2], there[2]) == (PORTS["http"], PORTS["https"])
    return there == here or (upgraded and there[:2] == ("https", here[1]))


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address, whether the usual port is written or not."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


def has_token() -> bool:
    """Whether the library has a token to send."""
    return "authorization" in headers(endpoint())
