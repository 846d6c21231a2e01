"""Fetching files of a repository into the cache: several at a time, and only what is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from merging.errors import Cancelled, HubError
from merging.files.disk import free_bytes
from merging.hub import cache, client
from merging.hub.download import Download
from merging.hub.facts import facts
from merging.hub.failures import explained
from merging.hub.line import Line
from merging.hub.repository import BRANCH, Repository, RepositoryFacts, RepositoryFile
from merging.progress import Meter
from merging.tasks.context import QUIET, Context
from merging.text import size_text

AT_ONCE = 4  # files


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
    if folder := cache.whole(repository, files, into):
        return folder
    client.require_on(repository.name)
    place, line = cache.place_of(repository, into), Line(limit_rate)
    downloads: list[Download] = []
    try:
        if not repository.pinned and stated is None:
            stated = facts(repository, context)
        at = repository if stated is None else Repository(repository.kind, repository.name, stated.revision)
        missing = _total(files) - cache.bytes_here(at, files, into)
        _require_room(at, missing, place)
        downloads = [Download(at, file, place, line) for file in files]
        _run(downloads, at, line, context.meter(missing))
        for download in downloads:
            cache.link(place, str(at.revision), download.file.name, download.file.key)
        _note_branch(repository, at, place, context)
    except Cancelled:
        raise Cancelled(f"Cancelled; {_kept(repository, files, downloads, into)}") from None
    except Exception as error:  # several libraries raise errors that have no common class
        failure = explained(error, repository, place=place)
        if isinstance(failure, HubError) and failure.later:
            kept = _kept(repository, files, downloads, into)
            raise HubError(f"{failure} {kept[0].upper()}{kept[1:]}", failure.reason, True) from None
        raise failure from None
    return place / cache.SNAPSHOTS / str(at.revision)


def _total(files: Iterable[RepositoryFile]) -> int:
    """Bytes of files, as far as they are known."""
    return sum(file.size or 0 for file in files)


def _require_room(repository: Repository, needed: int, place: Path) -> None:
    if needed > (free := free_bytes(place)):
        raise HubError(
            f"{repository.name} takes {size_text(needed)}, and {size_text(free)} are free in {place.parent}: free some "
            "space, or set HF_HOME to a folder on a disk that has more.",
            "disk",
            True,
        )


def _run(downloads: list[Download], repository: Repository, line: Line, meter: Meter) -> None:
    def listen(count: int, name: str) -> None:
        meter.total += max(0, -count)  # these come again
        meter.advance(max(0, count), f"Fetching from {client.host()}", f"{repository.name} {name}")

    def task(download: Download) -> None:
        try:
            download.run()
        except Exception as error:  # as above
            raise explained(error, repository, download.file.name, download.place) from None

    listen(0, "")
    line.run([partial(task, download) for download in downloads], AT_ONCE, listen)


def _kept(
    repository: Repository, files: Iterable[RepositoryFile], downloads: Iterable[Download], into: Path | None
) -> str:
    """What is kept, and what that is for."""
    known = {file.name: file for file in (*files, *(download.file for download in downloads))}.values()
    here = cache.bytes_here(repository, known, into)
    if not here:
        return "nothing was kept."
    return f"{size_text(here)} of {size_text(_total(known))} are kept, and the next download goes on from there."


def _note_branch(repository: Repository, at: Repository, place: Path, context: Context) -> None:
    """Note which commit the branch has, so that programs that ask for no commit find the files without a network.

    The branch is asked for once if a commit was fetched; where it has moved on since, nothing is noted.
    """
    if not repository.pinned:
        cache.write_ref(place, repository.revision or BRANCH, str(at.revision))
    elif not cache.read_ref(place, BRANCH):
        with contextlib.suppress(HubError):  # the files are here, which is what was asked for
            branch = facts(Repository(repository.kind, repository.name), context)
            if branch.revision == repository.revision:
                cache.write_ref(place, BRANCH, branch.revision)
