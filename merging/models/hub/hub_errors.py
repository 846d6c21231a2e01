"""Errors of the Hub, each in one sentence that names the fix."""

from __future__ import annotations

import os
from pathlib import Path

from merging.base.errors import HubError, MergingError
from merging.base.files.disk import FULL
from merging.base.text import printable
from merging.models.hub import client
from merging.models.hub.repository import NOUNS, Repository

PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
DISK_ADVICE = "set HF_HOME to a folder on a disk that has"
NO_FILE, NO_REVISION, NO_ACCESS = "EntryNotFoundError", "RevisionNotFoundError", "GatedRepoError"
NO_REPOSITORY, DISABLED = "RepositoryNotFoundError", "DisabledRepoError"
NO_HUB = {"FileMetadataError", "UnsupportedProtocol", "InvalidURL", "LocalProtocolError", "JSONDecodeError"}
BROKEN_OFF = {"ReadTimeout", "ReadError", "RemoteProtocolError", "BrokenOffError"}


def classes(error: BaseException) -> set[str]:
    """The names of an error's class and its base classes; the library's modules differ between versions."""
    return {kind.__name__ for kind in type(error).__mro__}


def status_of(error: BaseException) -> int:
    """The HTTP status of the response behind an error; 0 if there was no response."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def explain_error(
    error: Exception, repository: Repository, file: str = "", cache_path: Path | None = None
) -> MergingError:
    """The error to raise instead of an error of the library, of its connection or of the disk."""
    if isinstance(error, MergingError):
        return error
    names, status = classes(error), status_of(error)
    subject = f"{printable(file)} of {repository.name}" if file else repository.name
    if NO_ACCESS in names or (status == 401 and NO_REPOSITORY not in names):
        return HubError(_no_access(names, repository), "access")
    if gone := _describe_missing(names, repository, file):
        return HubError(gone, "missing")
    if status:
        later = status in {408, 429} or status >= 500
        advice = "try again later" if later else "try again, or download it in a browser and give its path"
        text = f"{client.host()} did not send {subject} (HTTP {status}): {advice}."
        return HubError(text, "busy" if later else "other", later)
    if isinstance(error, OSError) and not names & {"ConnectionError", "TimeoutError", "FileMetadataError"}:
        return HubError(_disk_advice(error, cache_path), "disk", True)
    return _connection_error(error, names, repository, subject)


def _no_access(names: set[str], repository: Repository) -> str:
    if NO_ACCESS not in names:
        return f"{client.host()} does not accept the token in use: set HF_TOKEN to a valid one, or log in again."
    asks, accept = f"{repository.name} asks for accepted terms", f"accept them at its page, {client.page(repository)}"
    if client.has_token():
        return f"{asks}, and the account of the token in use has not accepted them: {accept}."
    return f"{asks}: {accept}, then set HF_TOKEN."


def _describe_missing(names: set[str], repository: Repository, file: str) -> str:
    """A sentence on what is missing; empty for other errors."""
    host, noun = client.host(), NOUNS[repository.kind]
    if NO_FILE in names:
        revision = f"at {repository.revision[:12]}" if repository.revision else "on its main branch"
        return f"{repository.name} on {host} has no file {printable(file)} {revision}: choose another revision."
    if NO_REVISION in names:
        return f"{repository.name} on {host} has no revision {repository.revision}: choose another one, or none."
    if DISABLED in names:
        return f"{host} has switched off access to {repository.name}: use another copy and give its path."
    if NO_REPOSITORY in names:
        return (
            f"There is no public {noun} {repository.name} on {host}: check its name, or set HF_TOKEN if it is private."
        )
    return ""


def _disk_advice(error: OSError, path: Path | None) -> str:
    shown = printable(str(path or error.filename or "the cache"), 200)
    if error.errno in FULL:
        return f"The disk of {shown} is full: free some space, or {DISK_ADVICE} more."
    reason = error.strerror or type(error).__name__
    return f"{shown} cannot be written to ({reason}): set HF_HOME to a folder that can be written to."


def _connection_error(error: Exception, names: set[str], repository: Repository, subject: str) -> HubError:
    host, kind, reason = client.host(), type(error).__name__, printable(" ".join(str(error).split()), 160)
    if "OfflineModeIsEnabled" in names:
        variable = next((name for name in OFFLINE if os.environ.get(name)), OFFLINE[0])
        fix = "unset it, or give the path of a copy"
        return HubError(f"{repository.name} is on {host}, which {variable} forbids to ask: {fix}.", "setting")
    later = False
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        fix = "check this machine's clock, or set SSL_CERT_FILE to the certificates of your network"
        text = f"The certificate of {host} was refused ({reason}): {fix}."
    elif "ProxyError" in names:
        variables = [name for name in PROXIES if os.environ.get(name) or os.environ.get(name.lower())]
        text = f"The proxy on the way to {host} failed ({reason}): {' or '.join(variables or PROXIES)} sets it."
    elif "TooManyRedirects" in names:
        text = f"{host} redirects again and again: check HF_ENDPOINT, or unset it."
    elif names & NO_HUB:
        text = f"{host} does not answer as the Hub does ({kind}): check HF_ENDPOINT, or unset it."
    elif names & BROKEN_OFF:
        later = True
        text = (
            f"The connection to {host} broke off again and again while {subject} was fetched ({kind}): try again later."
        )
    else:
        later = True
        fix = f"download {repository.name} on another one and give its path"
        text = f"This machine has no connection to {host} ({kind}); {fix}."
    return HubError(text, "connection", later)
