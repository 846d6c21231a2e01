"""Units whose results workers write into the store themselves, where they see its folder.

A file in that folder says whether a worker sees it, and whether the program that asked still waits: it is there as
long as that program does, and workers that compute for long look for it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.errors import MergingError, Paused, WorkerError, WorkersGone
from merging.files.disk import OTHER_STORE, explained
from merging.files.temporary import temporary_name
from merging.tasks.context import QUIET, Context
from merging.workers.about import sees
from merging.workers.checking import survey
from merging.workers.fan_out import Request, Workers, fan_out
from merging.workers.sentences import Arrivals, does_not_see_store
from merging.workers.units import Plain

LOOK = 0.5  # seconds between two looks at whether the program that asked still waits
Mark = Mapping[str, str]


@contextmanager
def marked(folder: Path) -> Iterator[Mark]:
    """A file in ``folder`` for as long as the block runs: its path and its text. Raises StoreError if it cannot be."""
    path, text = folder.absolute() / temporary_name(), uuid.uuid4().hex
    with explained("The store", OTHER_STORE):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    try:
        yield {"path": str(path), "text": text}
    finally:
        path.unlink(missing_ok=True)


def forsaken(mark: Any) -> Callable[[], bool]:
    """Whether the program that asked for a unit is gone; for the worker to ask as often as it likes.

    Raises:
        WorkerError: this worker does not see the store.
    """
    if not sees(mark):
        place = Path(str(mark.get("path", ""))).parent if isinstance(mark, Mapping) else "no place"
        raise WorkerError(f"{does_not_see_store(place)}.")
    looked, gone = time.monotonic(), False

    def asked() -> bool:
        nonlocal looked, gone
        if not gone and time.monotonic() - looked > LOOK:
            looked, gone = time.monotonic(), not sees(mark)
        return gone

    return asked


@dataclass
class InStore:
    """Units of one kind, ``what`` in words, whose results go into the store at ``folder``."""

    unit: str
    what: str
    folder: Path
    total: int  # with those that are there already
    context: Context = QUIET

    def on(self, workers: Workers, requests: Sequence[Request]) -> dict[str, MergingError] | None:
        """Let workers do them; the errors of those that fail, by name. None if some worker does not see the store.

        Raises:
            Cancelled: as asked. Paused: likewise. WorkersGone: there was no worker for a minute. What
                is finished is kept.
        """
        meter, failures = self.context.meter(len(requests)), dict[str, MergingError]()
        arrivals = Arrivals(self.what, self.total, workers, meter, self.total - len(requests))
        with marked(self.folder) as mark:
            if not all(each["sees_store"] for each in survey(workers, self.context.device, mark)):
                what = f"{self.what.lower()}s"
                self.context.warn(f"{does_not_see_store(self.folder)}, or {what} are computed here.")
                return None

            def done(name: str, answer: Plain) -> None:
                for sentence in answer.get("warnings", ()):
                    self.context.warn(str(sentence))
                if answer.get("name") != name:
                    failures[name] = WorkerError(f"a worker wrote {answer.get('name')} instead of {name}.")
                Path(mark["path"]).touch()  # what is a day old would be swept up
                arrivals.count()

            def failed(name: str, error: MergingError) -> None:
                failures[name] = error
                arrivals.count()

            def told(names: Collection[str]) -> None:
                self.context.warn(arrivals.lost(names))

            begun = list[str]()
            try:
                fan_out(
                    workers, self.unit, self._each(requests, mark, begun), done, failed, self.context, told=told,
                    seen=arrivals.tell,
                )  # fmt: skip
            except WorkersGone as gone:
                raise WorkersGone(f"{gone} {self._kept(arrivals, failures)}") from None
        if len(begun) < len(requests):
            raise Paused(f"Paused. {self._kept(arrivals, failures)}")
        return failures

    def _each(self, requests: Sequence[Request], mark: Mark, begun: list[str]) -> Iterator[Request]:
        for name, asked in requests:
            if self.context.pauses():
                return
            begun.append(name)
            yield name, {**asked, "probe": mark}

    def _kept(self, arrivals: Arrivals, failures: Collection[str]) -> str:
        return f"{arrivals.arrived - len(failures)} of {self.total} {self.what.lower()}s are kept."
