"""The benchmark that a session works on: what it holds, and changing to another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data, models
from app.session import benchmark
from merging import settings
from merging.benchmarks import folders
from merging.benchmarks.folders import SERVER
from merging.checkpoints.references import OWN_PREFIX
from merging.errors import MergingError
from merging.text import first_few
from viz.text import clean_text

if TYPE_CHECKING:
    from merging.catalog.scan import CatalogEntry

PICKER, SAID = "benchmark_picked", "benchmark_said"
HELP = (
    "Scores, exemplars, measurements and sweeps are of this benchmark, and so is every chart: runs that were scored on "
    "another one are not shown beside its own. The choice is this session's; links carry it."
)


def offered(listed: Sequence[CatalogEntry]) -> dict[str, Path]:
    """{name: folder} of what this session may work on: the server's, those built here, listed ones, a typed one."""
    found = {SERVER: settings.benchmark_folder(), **folders.built(data.store().root)}
    for item in listed:
        if item.path.resolve() not in [path.resolve() for path in found.values()]:
            found[key(item)] = item.path.resolve()
    return found


def key(item: CatalogEntry) -> str:
    """What this session calls a benchmark folder that is listed."""
    listed = folders.find(item.reference, data.store().root)
    return item.reference if listed else benchmark.typed(item.path)


def chooser(listed: Sequence[CatalogEntry]) -> None:
    """A picker of the benchmark, with what the chosen one holds."""
    st.subheader("What is everything measured on?", anchor=False)
    known = offered(listed)
    current = benchmark.key()
    if current not in known:  # typed before, and not listed at the moment
        known[current] = benchmark.folder()
    st.session_state[PICKER] = current
    with st.container(border=True):
        st.selectbox(
            "Benchmark", list(known), format_func=lambda key: _label(key, known[key]), key=PICKER, help=HELP,
            on_change=_pick, width=420,
        )  # fmt: skip
        _holds()
        if models.local():
            _delete(known)
    if said := st.session_state.pop(SAID, ""):
        st.info(text.safe_text(said, 300))


def _label(key: str, folder: Path) -> str:
    where = {SERVER: "", "own": "made here", "models": "listed", "typed": "typed"}.get(key.partition(":")[0], "")
    return clean_text(benchmark.title(folder), 60) + (f"  ·  {where}" if where else "")


def _pick() -> None:
    """Callback: work on the one that was picked."""
    benchmark.use(st.session_state[PICKER])


def _holds() -> None:
    """Tasks, images and experts of the chosen benchmark in two lines."""
    try:
        found = data.benchmark()
        counts = [found.count(task.key, data.SPLIT) for task in found.tasks]
        digest = found.digest
    except (MergingError, OSError) as error:
        st.error(text.safe_text(error, 600), icon=":material/error:")
        return
    inside = [clean_text(task.title, 40) for task in found.tasks if task.has_expert]
    outside = [clean_text(task.title, 40) for task in found.tasks if not task.has_expert]
    lines = [
        f"{where}: {text.safe_text(first_few(titles, 10), 600)}."
        for where, titles in (("With an expert", inside), ("Out of domain for every merge", outside))
        if titles
    ]
    side, most = (
        found.image_size,
        f"{min(counts):,} to {max(counts):,}" if min(counts) < max(counts) else f"{min(counts):,}",
    )
    lines.append(f"Images of {side} × {side} pixels, {most} of each data set to report on. Digest {digest[:8]}.")
    st.markdown("  \n".join(lines))
    if inside and not data.references(digest, data.stored()):
        st.caption(
            "The pretrained model and the experts have not been evaluated on it, so charts lack these bounds; "
            "`python -m merging benchmark make` does so with `--evaluate`."
        )


def _delete(known: dict[str, Path]) -> None:
    """A way to let benchmarks go that were made here."""
    made = {key: path for key, path in known.items() if key.startswith(OWN_PREFIX) and key != benchmark.key()}
    if not made:
        return
    with st.popover("Delete one that was made here", icon=":material/delete:", type="tertiary"):
        st.caption("Its scores stay in the runs, which are of no benchmark that is known then.")
        for key, path in made.items():
            st.button(f"Delete {clean_text(path.name, 40)}", key=f"unmake_{key}", on_click=_forget, args=(key,))


def _forget(key: str) -> None:
    """Callback: delete a benchmark that was made here, unless a job works on it."""
    from merging.files import atomic

    path = folders.built(data.store().root).get(key)
    if path is None or not models.local():
        return
    if any(job.live and job.benchmark == str(path) for job in data.runner().jobs()):
        st.session_state[SAID] = f"A job is working on {path.name}; it was left as it is."
        return
    atomic.retire(path)
    path.with_name(f"{path.name}.yaml").unlink(missing_ok=True)  # what it was made from
    st.session_state[SAID] = f"{path.name} was deleted."
