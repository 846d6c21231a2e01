"""Work in the background: slow modules while the browser starts, and after the first page what later pages need.

Modules are hidden from the garbage collector. A spare process loads the modules of jobs in advance, and becomes the
next job's process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamlit.runtime.scriptrunner_utils import script_run_context

from merging.base import modes
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction

if TYPE_CHECKING:
    from merging.tasks.queue.spare_process import SpareProcess

DELAY_SECONDS = 1.0  # in which the browser fetches the page's files from this process
END_SECONDS = 10.0  # that a server waits at its end for what it computes
SWITCH_INTERVAL = 0.0005  # seconds for which a page computes while another page, done with reading the disk, waits
FIRST_MODULES = (  # slow ones that the first page needs
    "pandas", "plotly.graph_objects", "viz.chart", "torch", "merging.engine.evaluation.evaluate",
    "merging.study.runs.execute", "app.layout", "app.views.run_page.first_picture", "app.views.runs.run_rows",
)  # fmt: skip
SLOW_MODULES = (*FIRST_MODULES, "pandas.io.formats.style", "sklearn.decomposition")
BACKGROUND = "preparing pages"  # the name of a thread
log = logging.getLogger(__name__)
context_log = logging.getLogger(script_run_context.__name__)  # it warns of what a page computes outside of a session
_lock, _is_done, is_ending = threading.Lock(), threading.Event(), threading.Event()
ReadAhead = Callable[[Callable[[], bool]], None]  # ends when the function that it gets returns True


def load_first_modules() -> None:
    """Load what the first page needs in a thread, while the server waits for the browser."""
    threading.Thread(target=import_modules, args=(FIRST_MODULES,), daemon=True).start()


def warm_up(spare: Callable[[], SpareProcess], read_ahead: ReadAhead) -> None:
    """Once in a process: freeze the loaded modules, then prepare later pages in the background."""
    with _lock:
        if _is_done.is_set():
            return
        sys.setswitchinterval(SWITCH_INTERVAL)  # ten times shorter: a page asks the disk hundreds of times
        _freeze()
        timer = threading.Timer(DELAY_SECONDS, prepare_pages, (spare(), read_ahead))
        timer.name, timer.daemon = BACKGROUND, True
        timer.start()
        _is_done.set()  # not after an error: the next page tries again


def skip_warm_up() -> None:
    """Prepare nothing in this process, which serves no browser."""
    _is_done.set()


def import_modules(names: Sequence[str]) -> None:
    """Import these modules. An import that fails is logged; the others still run."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            log.error("The module %s, named in app.startup, cannot be loaded: %s", name, error)


def load_modules() -> None:
    """Load the slow modules, and exempt them from garbage collection."""
    import_modules(SLOW_MODULES)
    _freeze()


def use_plain_texts() -> None:
    """Store texts of new tables as Python's strings, which are faster than Arrow's in small tables.

    A page that is drawn in the process of a notebook leaves the notebook's own choice.
    """
    if not _is_done.is_set():
        import pandas as pd

        pd.set_option("mode.string_storage", "python")


def prepare_pages(spare: SpareProcess, read_ahead: ReadAhead) -> None:
    """Load the slow modules, keep a process ready for the next job, draw resamples, and compute what pages show."""
    context_log.addFilter(_is_of_session)
    parts = [load_modules, draw_resamples, partial(read_ahead, is_ending.is_set)]
    if modes.is_allowed(VisitorAction.MERGE):  # otherwise it would use memory for nothing
        parts.insert(1, spare.keep_ready)
    for part in parts:
        if not is_ending.is_set():
            part()


def end_preparing() -> None:
    """At the end of the server, wait for what the thread that prepares pages computes, which cannot be cut off."""
    is_ending.set()
    for thread in threading.enumerate():
        if thread.name == BACKGROUND:
            thread.join(END_SECONDS)


def _is_of_session(_record: logging.LogRecord) -> bool:
    """Whether a warning that there is no session comes from elsewhere than the thread that prepares pages."""
    return threading.current_thread().name != BACKGROUND


def draw_resamples() -> None:
    """Draw what the intervals of most pages are computed from: the resamples of the images that scores are of."""
    from merging.images.benchmarks import resampled_tasks
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.runs.run import REPORTING_SPLIT

    with contextlib.suppress(MergingError):  # the pages say what is wrong with the benchmark
        benchmark = Benchmark.load()
        resampled_tasks.draw_ahead(
            {task.key: benchmark.count_images(task.key, REPORTING_SPLIT) for task in benchmark.tasks}
        )


def _freeze() -> None:
    """Exempt loaded objects from garbage collection, which Streamlit runs after every rerun.

    With torch loaded a collection would hold up all sessions for 0.1 s.
    """
    gc.collect()
    gc.freeze()
