"""Errors of the Hub, each in one sentence that names the fix."""

from __future__ import annotations

import os
from pathlib import Path

from merging.base.errors import HubError, MergingError
from merging.base.files.disk import DISK_FULL_ERRORS
from merging.base.text import printable
from merging.models.hub import client
from merging.models.hub.repository import KIND_NOUNS, Repository

PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
DISK_ADVICE = "set HF_HOME to a folder on a disk that has"
# Names of classes of errors of huggingface_hub and httpx.
NO_FILE_ERROR, NO_REVISION_ERROR, NO_ACCESS_ERROR = "EntryNotFoundError", "RevisionNotFoundError", "GatedRepoError"
NO_REPOSITORY_ERROR, DISABLED_ERROR = "RepositoryNotFoundError", "DisabledRepoError"
NOT_A_HUB_ERRORS = {"FileMetadataError", "UnsupportedProtocol", "InvalidURL", "LocalProtocolError", "JSONDecodeError"}
BROKEN_OFF_ERRORS = {"ReadTimeout", "ReadError", "RemoteProtocolError", "BrokenOffError"}


def class_names(error: BaseException) -> set[str]:
    """The names of an error's class and its base classes; the library's modules differ between versions."""
    return {kind.__name__ for kind in type(error).__mro__}


def http_status(error: BaseException) -> int:
    """The HTTP status of the response behind an error; 0 if there was no response."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def explain_error(
    error: Exception, repository: Repository, file: str = "", cache_path: Path | None = None
) -> MergingError:
    """The error to raise instead of an error of the library, of its connection or of the disk."""
    if isinstance(error, MergingError):
        return error
    names, status = class_names(error), http_status(error)
    subject = f"{printable(file)} of {repository.name}" if file else repository.name
    if NO_ACCESS_ERROR in names or (status == 401 and NO_REPOSITORY_ERROR not in names):
        return HubError(_describe_missing_access(names, repository), "access")
    if description := _describe_missing(names, repository, file):
        return HubError(description, "missing")
    if status:
        later = status in {408, 429} or status >= 500
        advice = "try again later" if later else "try again, or download it in a browser and give its path"
        text = f"{client.host()} did not send {subject} (HTTP {status}): {advice}."
        return HubError(text, "busy" if later else "other", later=later)
    if isinstance(error, OSError) and not names & {"ConnectionError", "TimeoutError", "FileMetadataError"}:
        return HubError(_describe_disk_error(error, cache_path), "disk", later=True)
    return _make_connection_error(error, names, repository, subject)


def _describe_missing_access(names: set[str], repository: Repository) -> str:
    """A sentence on a refused token, or on terms that must be accepted first."""
    if NO_ACCESS_ERROR not in names:
        return f"{client.host()} does not accept the token in use: set HF_TOKEN to a valid one, or log in again."
    demand, remedy = (
        f"{repository.name} asks for accepted terms",
        f"accept them at its page, {client.page_url(repository)}",
    )
    if client.has_token():
        return f"{demand}, and the account of the token in use has not accepted them: {remedy}."
    return f"{demand}: {remedy}, then set HF_TOKEN."


def _describe_missing(names: set[str], repository: Repository, file: str) -> str:
    """A sentence that names the missing file, revision or repository; empty for other errors."""
    host, noun = client.host(), KIND_NOUNS[repository.kind]
    if NO_FILE_ERROR in names:
        revision = f"at {repository.revision[:12]}" if repository.revision else "on its main branch"
        return f"{repository.name} on {host} has no file {printable(file)} {revision}: choose another revision."
    if NO_REVISION_ERROR in names:
        return f"{repository.name} on {host} has no revision {repository.revision}: choose another one, or none."
    if DISABLED_ERROR in names:
        return f"{host} has switched off access to {repository.name}: use another copy and give its path."
    if NO_REPOSITORY_ERROR in names:
        return (
            f"There is no public {noun} {repository.name} on {host}: check its name, or set HF_TOKEN if it is private."
        )
    return ""


def _describe_disk_error(error: OSError, path: Path | None) -> str:
    shown_path = printable(str(path or error.filename or "the cache"), 200)
    if error.errno in DISK_FULL_ERRORS:
        return f"The disk of {shown_path} is full: free some space, or {DISK_ADVICE} more."
    reason = error.strerror or type(error).__name__
    return f"{shown_path} cannot be written to ({reason}): set HF_HOME to a folder that can be written to."


def _make_connection_error(error: Exception, names: set[str], repository: Repository, subject: str) -> HubError:
    host, kind, reason = client.host(), type(error).__name__, printable(" ".join(str(error).split()), 160)
    if "OfflineModeIsEnabled" in names:
        variable = next((name for name in OFFLINE_VARIABLES if os.environ.get(name)), OFFLINE_VARIABLES[0])
        fix = "unset it, or give the path of a copy"
        return HubError(f"{repository.name} is on {host}, which {variable} forbids to ask: {fix}.", "setting")
    later = False
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        fix = "check this machine's clock, or set SSL_CERT_FILE to the certificates of your network"
        text = f"The certificate of {host} was refused ({reason}): {fix}."
    elif "ProxyError" in names:
        variables = [name for name in PROXY_VARIABLES if os.environ.get(name) or os.environ.get(name.lower())]
        text = f"The proxy on the way to {host} failed ({reason}): {' or '.join(variables or PROXY_VARIABLES)} sets it."
    elif "TooManyRedirects" in names:
        text = f"{host} redirects again and again: check HF_ENDPOINT, or unset it."
    elif names & NOT_A_HUB_ERRORS:
        text = f"{host} does not answer as the Hub does ({kind}): check HF_ENDPOINT, or unset it."
    elif names & BROKEN_OFF_ERRORS:
        later = True
        text = (
            f"The connection to {host} broke off again and again while {subject} was fetched ({kind}): try again later."
        )
    else:
        later = True
        fix = f"download {repository.name} on another one and give its path"
        text = f"This machine has no connection to {host} ({kind}); {fix}."
    return HubError(text, "connection", later=later)
