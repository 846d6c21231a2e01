"""Safe addresses of workers: TLS with the user's certificates, or this machine alone.

Anyone who reaches a scheduler's port can run code as its account. So an address of another machine needs TLS with the
certificates in the folder $MERGESCOPE_CERTIFICATES, which only its owner may read. No setting turns this check off.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from merging.base.errors import WorkerError
from merging.base.settings import CERTIFICATES_VARIABLE

AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.pem", "cert.pem", "key.pem"
TLS, TCP = "tls", "tcp"
OTHERS_PERMISSIONS = 0o077  # permission bits of the group and of all other users


def find_certificates() -> Path | None:
    """The folder of the certificates; None if $MERGESCOPE_CERTIFICATES is not set.

    Raises:
        WorkerError: other users may read the folder, or a file is missing.
    """
    text = os.environ.get(CERTIFICATES_VARIABLE, "").strip()
    if not text:
        return None
    path = Path(text).expanduser()
    missing = [name for name in (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE) if not (path / name).is_file()]
    if missing:
        raise WorkerError(
            f"{CERTIFICATES_VARIABLE} names {path}, where {', '.join(missing)} is missing; see docs/cluster.md."
        )
    if path.stat().st_mode & OTHERS_PERMISSIONS:
        raise WorkerError(f"Other users may read the certificates in {path}. Make them private: chmod 700 {path}")
    return path


def require_safe_address(address: str) -> Path | None:
    """The folder of the certificates that an address needs; None for an address of this machine without TLS.

    Raises:
        WorkerError: the address is malformed or of another machine without TLS, or its certificates are missing.
    """
    parts = urlsplit(address)
    if parts.scheme not in (TLS, TCP) or not parts.hostname:
        raise WorkerError(f"An address is tls://host:port, or tcp://127.0.0.1:port; got {address[:80]!r}.")
    if parts.scheme == TLS:
        if (certificates := find_certificates()) is None:
            raise WorkerError(
                f"{address} needs certificates: set {CERTIFICATES_VARIABLE} to their folder; see docs/cluster.md."
            )
        return certificates
    if not is_this_machine(parts.hostname):
        raise WorkerError(
            f"The workers at {address} run code of anyone who reaches that port. "
            f"Use tls:// with {CERTIFICATES_VARIABLE}."
        )
    return None


def is_this_machine(host: str) -> bool:
    """Whether a host's name or number is a loopback address, which other machines cannot reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
