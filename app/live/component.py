"""The desk as a component of a page: Streamlit serves its files, and the visitor's browser computes."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlit.components.v1 import declare_component

from app import process_values
from app.live import desk, graph
from merging.base import modes, settings
from merging.base.errors import StoreError
from merging.base.files import atomic
from merging.base.files.locks import hold_lock
from merging.base.files.short_digest import short_digest
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.digest_cache import DIGESTS
from merging.models.model_references import PRETRAINED

FOLDER = "desks"  # of the store


def find_desk(benchmark: Benchmark, digest: str) -> Path:
    """The folder with the files of a benchmark's desk, which are written once for each state of benchmark and models.

    A server that only reads, or whose store cannot be written to, writes them to a temporary folder.

    Raises:
        CheckpointError: as ``desk.write_desk``, for example if the tower has too many weights.
        TaskError: images or heads of the benchmark cannot be read.
        StoreError: the temporary folder cannot be written to.
    """
    programs = [Path(str(module.__file__)).read_text("utf-8") for module in (desk, graph)]  # they decide on the files
    models = [DIGESTS.digest(benchmark.models()[name].open(name)) for name in (PRETRAINED, *benchmark.experts)]
    name = short_digest("".join([digest, *models, *programs]))
    root = settings.store_root() / FOLDER
    if atomic.is_whole(root / name):
        return root / name
    if modes.server_mode() != modes.Mode.READ:
        with contextlib.suppress(StoreError):
            return _write_once(root, name, benchmark)
    return _write_once(_make_temporary_root(), name, benchmark)


def _write_once(root: Path, name: str, benchmark: Benchmark) -> Path:
    """The folder ``name`` in ``root`` with the files of a desk, written unless another visitor did."""
    with hold_lock(root / f"{name}.lock"):
        if not atomic.is_whole(root / name):
            with atomic.write_folder(root, name, atomic.is_whole, "The desk of Mix") as folder:
                desk.write_desk(folder, benchmark)
    return root / name


@process_values.make_once
def _make_temporary_root() -> Path:
    """A folder that is removed when the server ends."""
    root = Path(tempfile.mkdtemp(prefix="mergescope-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def draw_desk(folder: Path, link: str, engine: Mapping[str, Any] | None) -> Any:
    """Draw the desk whose files ``folder`` has; returns {make: a desk, count}, the last one to be made a run, or None.

    ``link`` is the desk in the address, and ``engine`` {desk, scores: {task: (correct, n)}} are the engine's scores.
    """
    files = declare_component(f"desk_{folder.name}", folder)
    component = declare_component("mix", Path(__file__).parent)
    return component(folder=f"../{files.name}/", link=link, engine=engine, key=f"desk_{folder.name}", default=None)
