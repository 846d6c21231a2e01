"""The saved state of a run that learns, from which it continues after a pause or a crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from merging.base.errors import CheckpointError, MergingError, Paused
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.progress import Cancel, is_cancel_requested
from merging.models.formats.format_recognition import open_path
from merging.models.formats.safetensors import save

MAX_INTERVAL, MIN_INTERVAL = 30.0, 2.0  # seconds between two writes
INTERVAL_PER_WRITE = 100  # between the two, the interval is this multiple of a write's duration, so writing takes 1 %
State = Callable[[], Mapping[str, Tensor]]


class LearningState:
    """Named tensors in one file, in two parts: one for the merge, one for the adapt.

    A part offers its state between two steps. The file is written every few seconds and at a pause; the caller that
    chose its path calls ``remove`` when the run is finished. Without a path nothing is written, and a pause loses the
    state. ``run`` identifies the run. A file of another run is ignored, with a sentence in ``warnings``.
    """

    def __init__(self, path: Path | None = None, run: str = "", pause: Cancel | None = None) -> None:
        self.path, self.warnings = path, list[str]()
        self._run, self._pause = run, pause
        self._states: dict[str, State] = {}  # by part; a part that is not offered again stays as it was read
        self._written, self._interval = time.monotonic(), min(MIN_INTERVAL, MAX_INTERVAL)
        if path is not None and path.exists():
            self._read(path)

    def load(self, part: str) -> dict[str, Tensor]:
        """The saved tensors of this part, of any shape, by name; empty if there are none."""
        return dict(self._states[part]()) if part in self._states else {}

    def offer(self, part: str, state: State) -> None:
        """Offer a state, which is evaluated when it is written and must not change until the next offer.

        Raises:
            Paused: the caller asked for a pause.
            StoreError: the file cannot be written.
        """
        self._states[part] = state
        if self.path is not None and time.monotonic() - self._written >= self._interval:
            self.write()
        self.check()

    def finish_part(self, part: str) -> None:
        """Evaluate the state of a finished part, so that memory holds only its tensors."""
        final = self.load(part)
        self._states[part] = lambda: final

    def check(self) -> None:
        """Write the state and raise Paused if the caller asked for a pause."""
        if is_cancel_requested(self._pause):
            self.write()
            raise Paused("Paused; what was learned so far is saved.")

    def write(self) -> None:
        """Write the file. Raises StoreError if that fails; the file is then unchanged."""
        if self.path is None:
            return
        tensors = {
            f"{part}/{name}": tensor.detach().cpu()
            for part, state in self._states.items()
            for name, tensor in state().items()
        }
        started = time.monotonic()
        with explain_os_errors(self.path.name, STORE_REMEDY):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            save(self.path, tensors, {"run": self._run})
        self._written = time.monotonic()
        duration = self._written - started
        self._interval = min(max(MIN_INTERVAL, INTERVAL_PER_WRITE * duration), MAX_INTERVAL)

    def remove(self) -> None:
        """Remove the file; nothing happens if there is none."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    @contextmanager
    def remove_on_failure(self) -> Iterator[None]:
        """Remove the file if the block fails or is cancelled, but not at a pause."""
        try:
            yield
        except Paused:
            raise
        except MergingError:
            self.remove()
            raise

    def _read(self, path: Path) -> None:
        """Take over the tensors of a file; an unusable file causes a warning and is overwritten later."""
        consequence = "so learning starts over."
        try:
            file = open_path(path, path.name, path.name)
            if file.metadata.get("run", "") != self._run:
                self.warnings.append(f"{path.name} was saved by another run, {consequence}")
                return
            parts: dict[str, dict[str, Tensor]] = {}
            for key in file.infos:
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = file.read(key)
        except (CheckpointError, OSError) as error:
            self.warnings.append(f"{path.name} cannot be read ({error}), {consequence}")
            return
        for part, tensors in parts.items():
            self._states[part] = lambda tensors=tensors: tensors  # type: ignore[misc]
