"""Disk usage of the store, and facts about this machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from app import text
from app.reading import data, models
from app.views.runs import damage
from merging.base.text import size_text
from merging.study.runs.run import PRECOMPUTED, Run
from viz.text import plural

FRESH = 15.0  # seconds for which the count of the store's files is cached


def show(stored: Sequence[Run]) -> None:
    """Disk usage, damaged results, then the machine."""
    _meter(stored)
    damage.show()
    _machine()


@st.cache_data(ttl=FRESH, max_entries=4, show_spinner="Counting …")
def _usage(root: str) -> dict[str, int]:
    from merging.study.runs.disk_usage import usage

    return usage(Path(root))


def _meter(stored: Sequence[Run]) -> None:
    """Used bytes by purpose, and free bytes."""
    from merging.base.files.disk import free_bytes
    from merging.study.runs.disk_usage import WEIGHTS

    st.header("What uses disk space?", anchor=False)
    root = data.store().root
    used, free = _usage(str(root)), free_bytes(root)
    total = sum(used.values())
    own = sum(run.provenance != PRECOMPUTED for run in stored)
    st.progress(
        min(total / max(total + free, 1), 1.0),
        f"{size_text(total)} for {plural(own, 'own run')} and related files; {size_text(free)} free.",
    )
    most = max(used.values(), default=0) or 1
    rows = [{"What": what, "Size": size_text(size), "Share": size / most} for what, size in used.items()]
    st.dataframe(
        rows,
        hide_index=True,
        height="content",
        column_config={
            "What": st.column_config.TextColumn(width=240),
            "Size": st.column_config.TextColumn(width=110),
            "Share": st.column_config.ProgressColumn(
                "Against the largest", format=" ", min_value=0.0, max_value=1.0, color="#0072B2"
            ),
        },
        alt="Bytes by purpose",
    )
    if used[WEIGHTS]:
        st.caption(
            "Merged weights can be computed again from recipes, byte for byte. Choose some on the view “runs” and drop "
            "their weights: recipes, tables and scores stay."
        )


def _machine() -> None:
    """Device, memory and versions."""
    import psutil

    from merging.base.devices import choose_device, describe_device
    from merging.base.free_memory import free_memory
    from merging.study.runs.facts import versions

    st.header("About this machine", anchor=False)
    facts = {
        "Computes on": describe_device(choose_device(data.runner().device)),
        "Cores": f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}",
        "Memory": f"{size_text(psutil.virtual_memory().total)}, {size_text(free_memory())} available",
        "System": f"{platform.system()} {platform.machine()}",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "Streamlit": st.__version__,
    }
    if models.local():
        facts["Runs are in"] = str(data.store().root.absolute())
    else:
        facts["Mode"] = "shared by several people"
    rows = {name: text.safe_text(value, 300) for name, value in facts.items()}
    st.table(rows, border="horizontal", width="content", alt="About this machine")


def size(run: Run) -> int:
    """Bytes that a run takes on the disk."""
    try:
        return _size(run.path, run.path.stat().st_mtime_ns)
    except OSError:
        return 0


@st.cache_data(max_entries=2000, show_spinner=False)
def _size(path: Path, changed: int) -> int:
    from merging.base.files.disk import folder_size

    return folder_size(path)
