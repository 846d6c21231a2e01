"""The preview process: a process that stays running and computes previews and tables about single images.

It starts with the first request, and ends after some idle time or with this process. The next request starts it again,
even after a crash.
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

IDLE_SECONDS = 300.0  # seconds without a request after which the process ends
NICENESS = 5  # the server has priority over previews, and previews over jobs
MAX_SESSIONS = 200  # whose last requests are remembered
IMAGES_PER_TABLE = 100  # a table counts as this many images in a session's quota, since it takes many passes
MAX_SENDS = 2  # times that a request is sent to processes that end before they answer
PROCESS_NAME, ADVICE = "The process of previews", "the server's log says more."


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """A recipe, a sample of a benchmark, and the reference.

    The reference is the stored run with the id ``run``, the recipe ``reference`` as YAML, or by default the pretrained
    model. Relative paths in recipes are relative to ``base``.
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
    """A table about an image: its name, its model, and the other model if it compares two.

    Models are keys as in ``Towers``: "pretrained", "experts/TASK", the id of a run, or "draft". For attention,
    ``other`` is the number of a block or the name of a view.
    """

    table: str
    model: str
    other: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRequest:
    """Tables about one image, in the order in which they are answered.

    ``image`` is TASK:SPLIT:N. For a picture that is in no data set it is empty, and ``pixels`` are its (s, s, 3) bytes
    as base64. ``head`` is the data set whose classes models choose among. ``draft`` is a recipe as YAML; its model has
    the key "draft", and its relative paths are relative to ``base``.
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
    """The progress of a request: the preview on the images so far, or the tables so far, or the error.

    A table that cannot be made has one column, "error", with a sentence.
    """

    request: Request
    preview: Preview | None = None
    tables: dict[TableName, pd.DataFrame] = field(default_factory=dict)
    error: str = ""
    done: bool = False


@dataclass
class _SessionRequest:
    """The last request of a session, the process to which it was sent, and the number of times that it was sent."""

    state: PreviewState
    number: int = 0  # the "id" with which it was last sent and is answered
    send_count: int = 0
    process: WorkerProcess | None = None


class PreviewProcess:
    """Sends requests to the process and holds the newest answer for each session. Thread-safe."""

    def __init__(
        self,
        device: str = "auto",
        idle: float = IDLE_SECONDS,
        start: Callable[[Plain], WorkerProcess] = start_answering,
        charge: Charge | None = None,
    ) -> None:
        """``start`` starts a process from its settings (device, idle seconds, niceness).

        ``charge`` is called with a session and the number of images that its previews and tables add to its quota.
        """
        self._settings: Plain = {"device": device, "idle": idle, "nice": NICENESS}
        self._start, self._charge = start, charge
        self._lock = threading.RLock()
        self._process: WorkerProcess | None = None
        self._number = 0
        self._requests: OrderedDict[str, _SessionRequest] = OrderedDict()  # by session

    def send_request(self, session: str, request: Request) -> PreviewState:
        """The state of a request; it is sent unless it equals the session's last one.

        A new request stops the work on the last one. A request that failed is sent again.
        """
        with self._lock:
            state = self.find_state(session, request)
            if state is None or state.error:
                self._requests[session] = _SessionRequest(PreviewState(request))
                self._requests.move_to_end(session)
                while len(self._requests) > MAX_SESSIONS:
                    self.cancel(next(iter(self._requests)))
                self._send(session)
            return self._requests[session].state

    def find_state(self, session: str, request: Request) -> PreviewState | None:
        """The state of a request if it is the last one of this session."""
        with self._lock:
            last = self._requests.get(session)
            return last.state if last is not None and last.state.request == request else None

    def cancel(self, session: str) -> None:
        """Forget the request of a session; its work stops before the next batch."""
        with self._lock:
            last = self._requests.pop(session, None)
            if last is not None and not last.state.done and self._process is not None:
                self._number += 1
                self._process.send({"id": self._number, "session": session})  # no new request: only stops the last

    def cancel_other(self, session: str, request: Request) -> None:
        """Forget the request of a session if it is another one than ``request`` and not done."""
        with self._lock:
            last = self._requests.get(session)
            if last is not None and not last.state.done and last.state.request != request:
                self.cancel(session)

    @property
    def pid(self) -> int:
        """The number of the process; 0 if there is none now."""
        with self._lock:
            return self._process.pid if self._process is not None else 0

    @property
    def waiting_count(self) -> int:
        """The number of requests that are not done."""
        with self._lock:
            return sum(not session_request.state.done for session_request in self._requests.values())

    def close(self) -> None:
        """End the process and forget all requests, for tests and for shutting down."""
        with self._lock:
            process, self._process = self._process, None
            self._requests.clear()
        if process is not None:
            stop_process(process.process)

    def _send(self, session: str) -> None:
        """Send, or send again, the request of a session to the running process."""
        session_request = self._requests[session]
        self._number += 1
        session_request.number, session_request.send_count = self._number, session_request.send_count + 1
        try:
            process = self._ensure_running()
        except OSError as error:
            sentence = f"The process of previews cannot be started: {error.strerror}."
            session_request.state = replace(session_request.state, error=sentence, done=True)
            return
        session_request.process = process
        process.send({"id": self._number, "session": session, **asdict(session_request.state.request)})

    def _note_answer(self, answer: Plain) -> None:
        """Add an answer to the state of its request, unless the session has sent another request since."""
        with self._lock:
            for session, session_request in self._requests.items():
                if session_request.number == answer["id"]:
                    earlier_state = session_request.state
                    session_request.state = _add_answer(earlier_state, answer)
                    if self._charge is not None:
                        self._charge(
                            session, max(0, _count_images(session_request.state) - _count_images(earlier_state))
                        )

    def _handle_end(self, process: WorkerProcess, code: int, ran_out: bool) -> None:
        """Send the unanswered requests of an ended process again; after ``MAX_SENDS`` times they fail with an error.

        ``ran_out`` says whether memory ran out while the process worked.
        """
        with self._lock:
            for session, session_request in self._requests.items():
                if session_request.process is not process or session_request.state.done:
                    continue
                if session_request.send_count < MAX_SENDS:
                    self._send(session)
                else:
                    error = f"{describe_end(PROCESS_NAME, code, ran_out, ADVICE)} Preview again."
                    session_request.state = replace(session_request.state, error=error, done=True)

    def _ensure_running(self) -> WorkerProcess:
        """The process, or a new one if it has ended. Raises OSError."""
        if self._process is None or not self._process.pid:
            self._process = self._start(self._settings)
            threading.Thread(target=self._read, args=(self._process,), name="preview answers", daemon=True).start()
        return self._process

    def _read(self, process: WorkerProcess) -> None:
        """Note the answers of a process until it ends, then handle its end."""
        memory = MemoryWatch(sample_count=1)  # one look at each answer; hours may pass between two answers
        for answer in process.answers():
            memory.sample()
            self._note_answer(answer)
        code = process.process.wait()
        process.close_pipes()
        self._handle_end(process, code, memory.ran_out())


def _add_answer(state: PreviewState, answer: Plain) -> PreviewState:
    """The state of a request after one more answer: a preview, a table by columns, or an error."""
    import pandas as pd

    preview = Preview.from_plain(answer["preview"]) if "preview" in answer else state.preview
    new_tables = {TableName(*answer["table"]): pd.DataFrame(answer["columns"])} if "table" in answer else {}
    tables, error, done = state.tables | new_tables, answer.get("error", ""), answer["done"]
    return replace(state, preview=preview, tables=tables, error=error, done=done)


def _count_images(state: PreviewState) -> int:
    """The images that a state counts as in a session's quota."""
    return (state.preview.n if state.preview else 0) + IMAGES_PER_TABLE * len(state.tables)
