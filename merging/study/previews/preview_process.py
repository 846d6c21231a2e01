"""The bench: one warm process beside the queue, which answers previews and makes tables about single images.

It starts with the first request, ends when it was idle for a while or when this process ends, and is started again by
the next request, whatever ended it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from merging.base.free_memory import MemoryWatch
from merging.study.previews.preview import Preview
from merging.tasks.kinds import Plain
from merging.tasks.queue.child_process import WorkerProcess, describe_end, start_answering, stop_process

if TYPE_CHECKING:
    import pandas as pd

IDLE = 300.0  # seconds without a request after which the process ends
NICE = 5  # previews go before jobs, and the server before both
SESSIONS = 200  # whose last request is remembered
TABLE = 100  # images that a table of a single image counts as in a session's share: it takes many passes
TRIES = 2  # times that a request is sent to processes that end while it waits
WHO, LOOK = "The process of previews", "the server's log says more."


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """A recipe and a sample of a benchmark, and what it is compared with.

    ``run`` is the id of a stored run, ``reference`` a recipe as YAML; with neither it is the pretrained model. Relative
    paths in recipes count from ``base``.
    """

    recipe: str
    benchmark: str
    store: str
    run: str = ""
    reference: str = ""
    per_task: int | None = None
    seed: int = 0
    base: str = ""
    kind: str = "preview"


class TableName(NamedTuple):
    """A table about an image: which one, of which model, and with which other model, if it is of two.

    Models are keys as in ``Towers``: "pretrained", "experts/TASK", the id of a run, or "draft". Of attention, ``other``
    is the number of a block or the name of a view.
    """

    table: str
    model: str
    other: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRequest:
    """Tables about one image, in the order in which they are wanted.

    ``image`` is TASK:SPLIT:N; of a picture that is in no data set it is empty, and ``pixels`` are its (s, s, 3) bytes
    as base64. ``head`` is the data set whose classes are asked for, ``draft`` a recipe as YAML, whose model has the key
    "draft", and whose relative paths count from ``base``.
    """

    image: str
    tables: tuple[TableName, ...]
    benchmark: str
    store: str
    head: str = ""
    pixels: str = ""
    draft: str = ""
    base: str = ""
    kind: str = "image"


Request: TypeAlias = PreviewRequest | ImageRequest
Charge = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class PreviewState:
    """How far a request is: the preview on the images so far, or the tables so far, or why there are none.

    A table that cannot be made has one column, "error", with a sentence.
    """

    request: Request
    preview: Preview | None = None
    tables: dict[TableName, pd.DataFrame] = field(default_factory=dict)
    error: str = ""
    done: bool = False


@dataclass
class _SessionRequest:
    """The last request of a session: how far it is, its number, and to which process it was sent, how often."""

    state: PreviewState
    number: int = 0
    tries: int = 0
    process: WorkerProcess | None = None


class PreviewProcess:
    """Sends requests to the process and keeps the newest answer of each session. For any thread."""

    def __init__(
        self,
        device: str = "auto",
        idle: float = IDLE,
        start: Callable[[Plain], WorkerProcess] = start_answering,
        charge: Charge | None = None,
    ) -> None:
        """``start`` takes the order of a process, which says how it stays.

        ``charge`` takes the images that a session's previews have looked at, or its tables count as, since then.
        """
        self._order: Plain = {"device": device, "idle": idle, "nice": NICE}
        self._start, self._charge = start, charge
        self._lock = threading.RLock()
        self._process: WorkerProcess | None = None
        self._number = 0
        self._asked: OrderedDict[str, _SessionRequest] = OrderedDict()  # by session

    def request(self, session: str, request: Request) -> PreviewState:
        """The state of a request; it is sent unless it is the last one of this session, whose work then stops.

        One that failed is sent again.
        """
        with self._lock:
            state = self.find_state(session, request)
            if state is None or state.error:
                self._asked[session] = _SessionRequest(PreviewState(request))
                self._asked.move_to_end(session)
                while len(self._asked) > SESSIONS:
                    self.cancel(next(iter(self._asked)))
                self._send(session)
            return self._asked[session].state

    def find_state(self, session: str, request: Request) -> PreviewState | None:
        """The state of a request if it is the last one of this session."""
        with self._lock:
            asked = self._asked.get(session)
            return asked.state if asked is not None and asked.state.request == request else None

    def cancel(self, session: str) -> None:
        """Forget the request of a session; its work stops before the next batch."""
        with self._lock:
            asked = self._asked.pop(session, None)
            if asked is not None and not asked.state.done and self._process is not None:
                self._number += 1
                self._process.send({"id": self._number, "session": session})

    @property
    def pid(self) -> int:
        """The number of the process; 0 if there is none now."""
        with self._lock:
            return self._process.pid if self._process is not None else 0

    @property
    def count_waiting(self) -> int:
        """How many requests are under way."""
        with self._lock:
            return sum(not asked.state.done for asked in self._asked.values())

    def close(self) -> None:
        """End the process and forget all requests, for tests and for shutting down."""
        with self._lock:
            process, self._process = self._process, None
            self._asked.clear()
        if process is not None:
            stop_process(process.process)

    def _send(self, session: str) -> None:
        """Send the request of a session, once more if it was sent before, to a process that runs."""
        asked = self._asked[session]
        self._number += 1
        asked.number, asked.tries = self._number, asked.tries + 1
        try:
            process = self._ensure_running()
        except OSError as error:
            sentence = f"The process of previews cannot be started: {error.strerror}."
            asked.state = replace(asked.state, error=sentence, done=True)
            return
        asked.process = process
        process.send({"id": self._number, "session": session, **asdict(asked.state.request)})

    def _take(self, answer: Plain) -> None:
        """Note an answer, unless another one was asked meanwhile."""
        with self._lock:
            for session, asked in self._asked.items():
                if asked.number == answer["id"]:
                    before = asked.state
                    asked.state = _add_answer(before, answer)
                    if self._charge is not None:
                        self._charge(session, max(0, _count_images(asked.state) - _count_images(before)))

    def _handle_end(self, process: WorkerProcess, code: int, ran_out: bool) -> None:
        """Send once more what a process left when it ended; say of what has been sent before that it was ended.

        ``ran_out`` says whether memory ran out while the process worked.
        """
        with self._lock:
            for session, asked in self._asked.items():
                if asked.process is not process or asked.state.done:
                    continue
                if asked.tries < TRIES:
                    self._send(session)
                else:
                    error = f"{describe_end(WHO, code, ran_out, LOOK)} Preview again."
                    asked.state = replace(asked.state, error=error, done=True)

    def _ensure_running(self) -> WorkerProcess:
        """The process, or a new one if it has ended. Raises OSError."""
        if self._process is None or not self._process.pid:
            self._process = self._start(self._order)
            threading.Thread(target=self._read, args=(self._process,), name="from bench", daemon=True).start()
        return self._process

    def _read(self, process: WorkerProcess) -> None:
        """Take the answers of a process until it ends, then answer for it."""
        memory = MemoryWatch(looks=1)  # one at each answer, and hours may lie between two of them
        for answer in process.answers():
            memory.sample()
            self._take(answer)
        code = process.process.wait()
        process.leave()
        self._handle_end(process, code, memory.ran_out())


def _add_answer(state: PreviewState, answer: Plain) -> PreviewState:
    """The state of a request after one more answer: a preview, a table by columns, or an error."""
    import pandas as pd

    preview = Preview.from_plain(answer["preview"]) if "preview" in answer else state.preview
    new = {TableName(*answer["table"]): pd.DataFrame(answer["columns"])} if "table" in answer else {}
    tables, error, done = state.tables | new, answer.get("error", ""), answer["done"]
    return replace(state, preview=preview, tables=tables, error=error, done=done)


def _count_images(state: PreviewState) -> int:
    """What a state counts as in a session's share, in images."""
    return (state.preview.n if state.preview else 0) + TABLE * len(state.tables)
