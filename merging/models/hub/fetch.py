"""Fetching files of a repository into the cache: several at a time, and only what is missing."""

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
from merging.models.hub.repository import BRANCH, Repository, RepositoryFacts, RepositoryFile
from merging.models.hub.repository_facts import fetch_facts
from merging.tasks.context import QUIET, Context

PARALLEL_DOWNLOADS = 4  # files


def fetch(
    repository: Repository,
    files: Iterable[RepositoryFile],
    *,
    into: Path | None = None,
    context: Context = QUIET,
    limit_rate: float | None = None,
    stated: RepositoryFacts | None = None,
) -> Path:
    """The folder of a revision's files, of which those that are missing are fetched first.

    They go to the cache, or ``into`` a folder of the same layout. They are seen there when all of them have come; what
    came before a failure is kept, and the same call goes on from it. ``limit_rate`` is in bytes a second. ``stated`` is
    what ``facts`` said of the repository, if it was asked.

    Raises:
        HubError: in one sentence what is wrong and what to do.
        Cancelled: asked to stop; the text says what is kept.
    """
    files = tuple({file.name: file for file in files}.values())
    if folder := blob_cache.find_complete_snapshot(repository, files, into):
        return folder
    client.require_on(repository.name)
    place, line, downloads = (
        blob_cache.repository_folder(repository, into),
        DownloadThreads(limit_rate),
        list[Download](),
    )
    try:
        if not repository.pinned and stated is None:
            stated = fetch_facts(repository, context)
        at = repository if stated is None else Repository(repository.kind, repository.name, stated.revision)
        missing = _total(files) - blob_cache.count_cached_bytes(at, files, into)
        _require_room(at, missing, place)
        downloads = [Download(at, file, place, line) for file in files]
        _run(downloads, line, context.meter(missing), repository.name)
        for download in downloads:
            blob_cache.link(place, str(at.revision), download.file.name, download.file.key)
        _note_branch(repository, at, place, context)
    except Exception as error:  # several libraries raise errors that have no common class
        failure = explain_error(error, repository, cache_path=place)
        known = {file.name: file for file in (*files, *(download.file for download in downloads))}.values()
        here = blob_cache.count_cached_bytes(repository, known, into)
        of_all, goes_on = f"{size_text(here)} of {size_text(_total(known))}", "the next download goes on from there"
        kept = f"{of_all} are kept, and {goes_on}." if here else "nothing was kept."
        if isinstance(failure, Cancelled):
            raise Cancelled(f"Cancelled; {kept}") from None
        if isinstance(failure, HubError) and failure.later:
            failure = HubError(f"{failure} {kept[0].upper()}{kept[1:]}", failure.reason, True)
        raise failure from None
    return place / blob_cache.SNAPSHOTS / str(at.revision)


def _total(files: Iterable[RepositoryFile]) -> int:
    """Bytes of files, as far as they are known."""
    return sum(file.size or 0 for file in files)


def _require_room(repository: Repository, needed: int, place: Path) -> None:
    if needed > (free := free_bytes(place)):
        raise HubError(
            f"{repository.name} takes {size_text(needed)}, and {size_text(free)} are free in {place.parent}: free some "
            f"space, or {DISK_ADVICE} more.",
            "disk",
            True,
        )


def _run(downloads: list[Download], line: DownloadThreads, meter: Meter, name: str) -> None:
    def listen(count: int, file: str) -> None:
        meter.total += max(0, -count)  # these come again
        meter.advance(max(0, count), f"Fetching from {client.host()}", f"{name} {file}")

    listen(0, "")
    line.run([download.run for download in downloads], PARALLEL_DOWNLOADS, listen)


def _note_branch(repository: Repository, at: Repository, place: Path, context: Context) -> None:
    """Note which commit the branch has, so that programs that ask for no commit find the files without a network.

    The branch is asked for once if a commit was fetched; where it has moved on since, nothing is noted.
    """
    if not repository.pinned:
        blob_cache.write_ref(place, repository.revision or BRANCH, str(at.revision))
    elif not blob_cache.read_ref(place, BRANCH):
        with contextlib.suppress(HubError):  # the files are here, which is what was asked for
            branch = fetch_facts(Repository(repository.kind, repository.name), context)
            if branch.revision == repository.revision:
                blob_cache.write_ref(place, BRANCH, branch.revision)
