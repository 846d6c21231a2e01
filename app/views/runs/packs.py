"""Packs on Models & runs: the opened ones, the field that opens one, and the button that packs the chosen runs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import page_data
from app.session import benchmark_choice, click_errors
from merging.base.modes import VisitorAction
from merging.base.text import size_text
from merging.images.benchmarks import benchmark_folders
from merging.study.runs.run import Run
from merging.tasks import pack_folders
from merging.tasks.pack_folders import RUNS, SUFFIX
from viz.figure_text import clean_text, plural

UPLOAD_KEY, NOTICE_KEY, WRITTEN_KEY = "pack_upload", "pack_said", "_pack_written"
PACK_HELP = (
    "A pack is a file of results that others made: recipes, scores, tables, measurements and sweeps, without weights. "
    "It is opened read-only; nothing in it is run."
)
OUT = f"results{SUFFIX}"


def draw_opened() -> None:
    """Draw the opened packs, and the field that opens one where visitors may upload files."""
    from merging.sharing.packs.open_packs import MAX_UPLOAD_MB

    for folder in pack_folders.list_pack_folders(page_data.store().root):
        _draw_pack(folder)
    if notice := st.session_state.pop(NOTICE_KEY, ""):
        st.success(page_text.safe_text(notice, 300))
    if not permissions.is_allowed(VisitorAction.UPLOAD):
        return
    with st.expander("Open a pack of results", icon=":material/package_2:"):
        number = st.session_state.get(f"{UPLOAD_KEY}_number", 0)
        st.file_uploader(
            f"A pack, up to {MAX_UPLOAD_MB} MB", [SUFFIX.removeprefix(".")], key=f"{UPLOAD_KEY}_{number}",
            max_upload_size=MAX_UPLOAD_MB, on_change=_open_upload, args=(number,), help=PACK_HELP,
        )  # fmt: skip
        st.caption("Larger ones on a command line: `mergescope app --open results.msc`")


def _draw_pack(folder: Path) -> None:
    """Draw what is in an opened pack, a button to its benchmark if that is another one, and one that closes it."""
    name = clean_text(pack_folders.pack_name(folder / RUNS / "run"), 80)
    ids = [path.name for path in sorted((folder / RUNS).glob("*"))]
    current = page_data.current_digest()
    digests = {path.name: path for path in sorted((folder / pack_folders.BENCHMARKS).glob("*"))}
    elsewhere = {} if any(current.startswith(digits) for digits in digests) else digests
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        note = " They were scored on another benchmark." if elsewhere else ""
        st.markdown(
            f":material/package_2: **{page_text.safe_text(name)}**: {plural(len(ids), 'run')}, read-only, without "
            f"weights.{note}"
        )
        for digits in elsewhere:
            st.button(
                "Show its benchmark", key=f"pack_show_{folder.name}_{digits}", type="tertiary",
                on_click=benchmark_choice.switch_benchmark, args=(f"{benchmark_folders.PACK_PREFIX}{digits}",),
            )  # fmt: skip
        is_uploaded = folder in pack_folders.list_uploaded(page_data.store().root)
        if is_uploaded and permissions.is_allowed(VisitorAction.DELETE):
            st.button(
                "Close", key=f"pack_close_{folder.name}", type="tertiary", on_click=_close, args=(folder.name,),
                help="Its runs are no longer listed. The file that you uploaded stays where it is.",
            )  # fmt: skip


@click_errors.guard_callback
@requires(VisitorAction.UPLOAD)
def _open_upload(number: int) -> None:
    """Callback: open an uploaded pack, and free its memory."""
    from merging.sharing.packs.open_packs import open_upload

    upload = st.session_state.get(f"{UPLOAD_KEY}_{number}")
    if upload is None:
        return
    st.session_state[f"{UPLOAD_KEY}_number"] = number + 1  # a new, empty widget
    open_upload(upload, upload.name, page_data.store().root)
    st.session_state[NOTICE_KEY] = f"{upload.name} is open: its runs are in the lists of all pages."


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _close(folder_name: str) -> None:
    """Callback: close a pack; a session on its benchmark goes back to the server's."""
    from merging.sharing.packs.open_packs import close_pack

    if folder_name in benchmark_choice.benchmark_folder().parts:
        benchmark_choice.switch_benchmark(benchmark_folders.SERVER)
    close_pack(folder_name, page_data.store().root)


def draw_pack_button(runs: Sequence[Run]) -> None:
    """Draw the button that packs runs, and the download of the pack once it is written."""
    if not permissions.is_allowed(VisitorAction.COMMAND):
        return
    ids = [run.id for run in runs]
    st.button(
        "Pack", icon=":material/package_2:", type="tertiary", key="pack_runs", on_click=_pack, args=(ids,),
        help=f"One file with the results of {plural(len(ids), 'run')}, without weights, paths and names of people. "
        "It opens here and with mergescope app --open.",
    )  # fmt: skip
    packed_ids, content = st.session_state.get(WRITTEN_KEY, ([], b""))
    if content and packed_ids == ids:
        st.download_button(
            f"Download {OUT} ({size_text(len(content))})", content, OUT, "application/zip", key="pack_download",
            on_click="ignore", icon=":material/download:",
        )  # fmt: skip


@click_errors.guard_callback
@requires(VisitorAction.COMMAND)
def _pack(ids: list[str]) -> None:
    """Callback: pack runs, and hold the pack in the session for its download."""
    from merging.sharing.packs.pack_runs import list_benchmarks, pack_runs

    store = page_data.store()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, OUT)
        pack_runs(ids, store, [page_data.benchmark(), *list_benchmarks(store.root)], path)
        st.session_state[WRITTEN_KEY] = ids, path.read_bytes()
