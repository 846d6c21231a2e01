"""Disk usage of the store and facts about this machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import streamlit as st

from app import page_text
from app.reading import listed_models, page_data
from app.views.runs import damaged_results
from merging.base.text import size_text
from merging.study.runs.run import THIS_MACHINE, Run
from viz.figure_text import plural

CACHE_SECONDS = 15.0  # for which the sizes of the store's files are cached


def draw_usage(stored_runs: Sequence[Run]) -> None:
    """Draw the disk usage, damaged results, and the facts about this machine."""
    _draw_usage_table(stored_runs)
    damaged_results.draw_damaged_results()
    _draw_machine()


@st.cache_data(ttl=CACHE_SECONDS, max_entries=4, show_spinner="Counting …")
def _measure_usage(root: str) -> dict[str, int]:
    from merging.study.runs.disk_usage import measure_usage

    return measure_usage(Path(root))


def _draw_usage_table(stored_runs: Sequence[Run]) -> None:
    """Draw the bytes used for each purpose, and the free bytes."""
    from merging.base.files.disk import free_bytes
    from merging.study.runs.disk_usage import WEIGHTS

    st.header("What uses disk space?", anchor=False)
    root = page_data.store().root
    bytes_by_purpose, free = _measure_usage(str(root)), free_bytes(root)
    total = sum(bytes_by_purpose.values())
    own_run_count = sum(run.provenance == THIS_MACHINE for run in stored_runs)
    st.progress(
        min(total / max(total + free, 1), 1.0),
        f"{size_text(total)} for {plural(own_run_count, 'own run')} and related files; {size_text(free)} free.",
    )
    largest = max(bytes_by_purpose.values(), default=0) or 1
    rows = [
        {"What": purpose, "Size": size_text(size), "Share": size / largest}
        for purpose, size in bytes_by_purpose.items()
    ]
    st.dataframe(
        rows,
        hide_index=True,
        height="content",
        column_config={
            "What": st.column_config.TextColumn(width=240),
            "Size": st.column_config.TextColumn(width=110),
            "Share": st.column_config.ProgressColumn(
                "Relative to the largest", format=" ", min_value=0.0, max_value=1.0, color="#0072B2"
            ),
        },
        alt="Bytes by purpose",
    )
    if bytes_by_purpose[WEIGHTS]:
        st.caption(
            "Merged weights can be computed again from recipes, byte for byte. Choose runs in the view “runs” and drop "
            "their weights: recipes, tables and scores stay."
        )


def _draw_machine() -> None:
    """Draw a table of the device, memory and versions."""
    import psutil

    from merging.base.devices import choose_device, describe_device
    from merging.base.free_memory import free_memory
    from merging.study.runs.run_facts import list_versions

    st.header("About this machine", anchor=False)
    facts = {
        "Computes on": describe_device(choose_device(page_data.job_queue().device)),
        "Cores": f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}",
        "Memory": f"{size_text(psutil.virtual_memory().total)}, {size_text(free_memory())} available",
        "System": f"{platform.system()} {platform.machine()}",
        "Versions": ", ".join(f"{name} {version}" for name, version in list_versions().items()),
        "Streamlit": st.__version__,
    }
    if listed_models.is_local():
        facts["Runs are in"] = str(page_data.store().root.absolute())
    else:
        facts["Mode"] = "shared by several people"
    rows = {name: page_text.safe_text(value, 300) for name, value in facts.items()}
    st.table(rows, border="horizontal", width="content", alt="About this machine")


def run_size(run: Run) -> int:
    """Bytes that a run takes on the disk."""
    try:
        return _measure_folder(run.path, run.path.stat().st_mtime_ns)
    except OSError:
        return 0


@lru_cache(maxsize=2000)  # a table of runs asks for each; Streamlit's caches are slower
def _measure_folder(path: Path, modified_ns: int) -> int:  # ``modified_ns`` is a part of the cache's key
    from merging.base.files.disk import folder_size

    return folder_size(path)
