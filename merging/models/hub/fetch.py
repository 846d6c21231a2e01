"""Fetches the missing files of a repository into the cache, several at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from merging.base.errors import Cancelled, HubError
from merging.base.files.disk import free_bytes
from merging.base.progress import Meter
from merging.base.text import size_text
from merging.models.hub import blob_cache, client
from merging.models.hub.download import Download
from merging.models.hub.download_threads import DownloadThreads
from merging.models.hub.hub_errors import DISK_ADVICE, explain_error
from merging.models.hub.repository import DEFAULT_BRANCH, Repository, RepositoryFacts, RepositoryFile
from merging.models.hub.repository_facts import fetch_facts
from merging.tasks.context import QUIET, Context

PARALLEL_DOWNLOADS = 4  # files


def fetch(
    repository: Repository,
    files: Iterable[RepositoryFile],
    *,
    separate_cache: Path | None = None,
    context: Context = QUIET,
    bytes_per_second: float | None = None,
    facts: RepositoryFacts | None = None,
) -> Path:
    """The folder of a revision's files; missing files are fetched first.

    Files are stored in the cache, or in ``separate_cache``, another folder of the same layout. They appear in the
    returned folder when all of them are complete. Bytes that were received before a failure stay, and the same call
    continues from them.
    ``bytes_per_second`` limits the speed. ``facts`` is the result of ``fetch_facts``, if the caller has it.

    Raises:
        HubError: the message is one sentence with the problem and its fix.
        Cancelled: the user cancelled; the message states how much is cached.
    """
    files = tuple({file.name: file for file in files}.values())
    if folder := blob_cache.find_complete_snapshot(repository, files, separate_cache):
        return folder
    client.require_hub_access(repository.name)
    path, threads, downloads = (
        blob_cache.repository_folder(repository, separate_cache),
        DownloadThreads(bytes_per_second),
        list[Download](),
    )
    try:
        if not repository.pinned and facts is None:
            facts = fetch_facts(repository, context)
        pinned = repository if facts is None else Repository(repository.kind, repository.name, facts.revision)
        missing = _sum_sizes(files) - blob_cache.count_cached_bytes(pinned, files, separate_cache)
        _require_free_space(pinned, missing, path)
        downloads = [Download(pinned, file, path, threads) for file in files]
        _run_downloads(downloads, threads, context.meter(missing), repository.name)
        for download in downloads:
            blob_cache.link_blob(path, str(pinned.revision), download.file.name, download.file.key)
        _store_branch(repository, pinned, path, context)
    except Exception as error:  # several libraries raise errors that have no common class
        failure = explain_error(error, repository, cache_path=path)
        known_files = {file.name: file for file in (*files, *(download.file for download in downloads))}.values()
        cached = blob_cache.count_cached_bytes(repository, known_files, separate_cache)
        cached_share, continuation = (
            f"{size_text(cached)} of {size_text(_sum_sizes(known_files))}",
            "the next download goes on from there",
        )
        outcome = f"{cached_share} are kept, and {continuation}." if cached else "nothing was kept."
        if isinstance(failure, Cancelled):
            raise Cancelled(f"Cancelled; {outcome}") from None
        if isinstance(failure, HubError) and failure.later:
            failure = HubError(f"{failure} {outcome[0].upper()}{outcome[1:]}", failure.reason, later=True)
        raise failure from None
    return path / blob_cache.SNAPSHOTS / str(pinned.revision)


def _sum_sizes(files: Iterable[RepositoryFile]) -> int:
    """Bytes of the files whose sizes are known."""
    return sum(file.size or 0 for file in files)


def _require_free_space(repository: Repository, needed: int, path: Path) -> None:
    """Raise HubError if the disk has fewer free bytes than ``needed``."""
    if needed > (free := free_bytes(path)):
        raise HubError(
            f"{repository.name} takes {size_text(needed)}, and {size_text(free)} are free in {path.parent}: free some "
            f"space, or {DISK_ADVICE} more.",
            "disk",
            later=True,
        )


def _run_downloads(downloads: list[Download], threads: DownloadThreads, meter: Meter, name: str) -> None:
    def report(count: int, file: str) -> None:
        meter.total += max(0, -count)  # bytes to receive again
        meter.advance(max(0, count), f"Fetching from {client.host()}", f"{name} {file}")

    report(0, "")
    threads.run([download.run for download in downloads], PARALLEL_DOWNLOADS, report)


def _store_branch(repository: Repository, pinned: Repository, path: Path, context: Context) -> None:
    """Store the commit of the branch, so that programs that name no commit find the files without a network.

    After the fetch of a commit, the Hub is asked once for the main branch; if it has another commit, nothing is stored.
    """
    if not repository.pinned:
        blob_cache.write_ref(path, repository.revision or DEFAULT_BRANCH, str(pinned.revision))
    elif not blob_cache.read_ref(path, DEFAULT_BRANCH):
        with contextlib.suppress(HubError):  # the files are complete, so the fetch has succeeded
            branch = fetch_facts(Repository(repository.kind, repository.name), context)
            if branch.revision == repository.revision:
                blob_cache.write_ref(path, DEFAULT_BRANCH, branch.revision)
