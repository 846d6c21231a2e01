"""Fetches the Hub's facts about a repository: commit, license, terms, and files with sizes and digests."""

from __future__ import annotations

from typing import Any

from merging.base.errors import HubError
from merging.base.text import printable
from merging.models.hub import client
from merging.models.hub.download_threads import DownloadThreads
from merging.models.hub.hub_errors import explain_error
from merging.models.hub.repository import COMMIT, SHA256_PATTERN, Repository, RepositoryFacts, RepositoryFile
from merging.tasks.context import QUIET, Context

TIMEOUT_SECONDS = 10.0  # seconds to wait for an answer


def fetch_facts(repository: Repository, context: Context = QUIET) -> RepositoryFacts:
    """The Hub's facts about a repository at its revision.

    Raises:
        HubError: a setting forbids the request, or there is no connection, repository or revision.
        Cancelled: the user cancelled.
    """
    client.require_hub_access(repository.name)
    context.check()
    hub, threads = client.load_library(), DownloadThreads()
    responses: list[Any] = []

    def request() -> Any:
        api = hub.HfApi(endpoint=client.endpoint())
        info = api.model_info if repository.kind == "model" else api.dataset_info
        return info(repository.name, revision=repository.revision, timeout=TIMEOUT_SECONDS, files_metadata=True)

    try:
        threads.run(
            [lambda: responses.append(threads.call_with_retries(request))], 1, lambda count, name: context.check()
        )
    except Exception as error:  # several libraries raise errors that have no common class
        raise explain_error(error, repository) from None
    (response,) = responses
    try:
        files = tuple(_read_file(entry) for entry in response.siblings or [])
    except HubError as error:
        raise _make_unsafe_answer_error(repository, str(error)) from None
    if not COMMIT.fullmatch(str(response.sha)):
        raise _make_unsafe_answer_error(repository, f"{printable(str(response.sha))!r} is not a commit.")
    return RepositoryFacts(str(response.sha), _read_license(response.card_data), bool(response.gated), files)


def _make_unsafe_answer_error(repository: Repository, problem: str) -> HubError:
    """The error for a response whose names could lead out of the cache."""
    return HubError(f"{client.host()} does not answer as the Hub does about {repository.name}: {problem}", "connection")


def _read_file(entry: Any) -> RepositoryFile:
    size, digest = entry.size, str(getattr(entry.lfs, "sha256", "") or "")
    sha256 = digest if SHA256_PATTERN.fullmatch(digest) else None
    # for a large file, git's id is that of a pointer, not of the file
    git_id = None if entry.lfs is not None or not entry.blob_id else str(entry.blob_id)
    return RepositoryFile(entry.rfilename, None if size is None else int(size), sha256, git_id)


def _read_license(card: Any) -> str | None:
    """The license that a card states; None if it states none."""
    license_field = getattr(card, "license", None)
    names = [str(name) for name in (license_field if isinstance(license_field, list) else [license_field]) if name]
    if names == ["other"] and (name := getattr(card, "license_name", None)):
        names = [f"other ({name})"]
    return ", ".join(names) or None
