"""What runs take on the disk, and what this machine is."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import streamlit as st

from app import text
from app.reading import data, models
from merging.runs.run import PRECOMPUTED, Run
from merging.text import size_text
from viz.text import plural

FRESH = 15.0  # seconds for which a count of the store's files stands


def show(stored: Sequence[Run]) -> None:
    """The meter, then the machine."""
    _meter(stored)
    _machine()


@st.cache_data(ttl=FRESH, max_entries=4, show_spinner="Counting …")
def _usage(root: str) -> dict[str, int]:
    from pathlib import Path

    from merging.runs.disk_usage import usage

    return usage(Path(root))


def _meter(stored: Sequence[Run]) -> None:
    """What takes how much, and how much is free."""
    from merging.files.disk import free_bytes
    from merging.runs.disk_usage import WEIGHTS

    st.subheader("What takes room?", anchor=False)
    root = data.store().root
    used, free = _usage(str(root)), free_bytes(root)
    total = sum(used.values())
    own = sum(run.provenance != PRECOMPUTED for run in stored)
    st.progress(
        min(total / max(total + free, 1), 1.0),
        f"{size_text(total)} by {plural(own, 'own run')} and what belongs to them; {size_text(free)} are free.",
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
        alt="Bytes by what they are for",
    )
    if used[WEIGHTS]:
        st.caption(
            "Merged weights can be made again from recipes, byte for byte. Under runs, choose some and drop their "
            "weights: recipes, tables and scores stay."
        )


def _machine() -> None:
    """What computes here, with which versions."""
    import psutil

    from merging.devices import choose_device, describe_device
    from merging.runs.facts import versions

    st.subheader("About this machine", anchor=False)
    memory = psutil.virtual_memory()
    facts = {
        "Computes on": describe_device(choose_device(data.runner().device)),
        "Cores": f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}",
        "Memory": f"{size_text(memory.total)}, {size_text(memory.available)} available",
        "System": f"{platform.system()} {platform.machine()}",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "Streamlit": st.__version__,
    }
    if models.local():
        facts["Runs are in"] = str(data.store().root.absolute())
    else:
        facts["Mode"] = "shared by several people"
    shown = {name: text.safe_text(value, 300) for name, value in facts.items()}
    st.table(shown, border="horizontal", width="content", alt="About this machine")
