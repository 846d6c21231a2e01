"""The list of models on Models & runs: their folders, facts about each file, and unreadable files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import listed_models as model_files
from app.reading import page_data
from app.reading.listed_models import ListedModels
from app.session import click_errors
from app.widgets import fit_report, page_parts
from app.widgets.jobs import tray
from merging.base import settings
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.base.text import first_few, size_text
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    from merging.sharing.catalog.model_groups import ModelGroup

TYPED_PATH_KEY, UPLOAD_KEY, NOTICE_KEY = "models_typed", "models_upload", "upload_said"
DIGEST_JOB = "digest"  # the job that reads files for their digests
MAX_TABLE_HEIGHT = 460  # px of the table
FIRST_UNREADABLE, MAX_UNREADABLE = 8, 200  # unreadable files that are listed at once, and in the expander
NO_FOLDER = (
    "No folder of models is listed. Start the app with `MERGESCOPE_MODELS=/path/to/your/models`; separate several "
    "folders by `{}`."
)
UPLOAD_HELP = (
    "safetensors or a torch file. The server keeps it in memory during the upload, so list a folder for large files."
)
ORIGIN_HELP = (
    "The nearest listed pretrained model, and the norm of the change as a share of the norm of that model's weights. "
    "“About” marks estimates for large files. A question mark means that the estimate is too close to 50% to decide."
)


def draw_sources() -> str:
    """Draw the sources of models: listed folders, a typed path, uploads; returns the typed path."""
    from merging.sharing.catalog import uploaded_models

    folders = list(settings.models_folders())
    typed_path = ""
    with st.container(border=True):
        if folders:
            names_in_words = page_text.join_words([f"**{page_text.safe_text(name)}**" for name in folders])
            folder_word = "Folders" if len(folders) > 1 else "The folder"
            st.markdown(
                f":material/folder_open: {folder_word} {names_in_words} {'are' if len(folders) > 1 else 'is'} listed."
            )
        else:
            st.markdown(f":material/folder_off: {NO_FOLDER.format(os.pathsep)}")
        if not model_files.is_local():
            st.caption(
                "Several people use this server: its host chooses the folders, and uploads and deletions are off."
            )
            return ""
        with st.grid(2, min_column_width=280):
            with st.container():
                typed_path = st.text_input(
                    "Your folder or file", key=TYPED_PATH_KEY, max_chars=1000, placeholder="/home/me/experts",
                    help="It is listed in this session only; sets that you make of it are stored.",
                )  # fmt: skip
            with st.container():
                upload_number = st.session_state.get(f"{UPLOAD_KEY}_number", 0)
                st.file_uploader(
                    f"Or a small file, up to {uploaded_models.MAX_MB_PER_FILE} MB", ["safetensors", "pt", "pth",
                    "bin", "ckpt", "pkl"],
                    key=f"{UPLOAD_KEY}_{upload_number}", max_upload_size=uploaded_models.MAX_MB_PER_FILE,
                    on_change=_store_upload, args=(upload_number,),
                    help=UPLOAD_HELP,
                )  # fmt: skip
        if notice := st.session_state.pop(NOTICE_KEY, None):
            (st.success if notice[0] else st.error)(page_text.safe_text(notice[1], 600))
    return typed_path.strip()


@click_errors.guard_callback
@requires(VisitorAction.UPLOAD)
def _store_upload(upload_number: int) -> None:
    """Callback: inspect an uploaded file, store it if it is a checkpoint, and free its memory."""
    from merging.sharing.catalog import uploaded_models

    upload = st.session_state.get(f"{UPLOAD_KEY}_{upload_number}")
    if upload is None:
        return
    try:
        item = uploaded_models.store_upload(page_data.store().root, upload.name, upload.getbuffer())
        st.session_state[NOTICE_KEY] = True, f"{item.name} was uploaded; it is in the list."
    except MergingError as error:
        st.session_state[NOTICE_KEY] = False, str(error)
    st.session_state[f"{UPLOAD_KEY}_number"] = upload_number + 1  # a new, empty widget


def draw_models(models: ListedModels, groups: Sequence[ModelGroup]) -> None:
    """Draw the table of models, the progress of inspecting files, and the files that are left out."""
    for note in models.notes:
        st.caption(f":material/info: {page_text.safe_text(note, 300)}")
    if models.not_inspected:
        done_share = len(models.inspected) / (len(models.inspected) + models.not_inspected)
        st.progress(done_share, f"Inspecting files: {plural(models.not_inspected, 'file')} left.")
    rows = model_files.models_table(models, groups)
    if len(rows):
        for column in rows.columns.difference(["size"]):
            rows[column] = [clean_text(value, 120) for value in rows[column]]
        text = st.column_config.TextColumn
        columns = {
            "name": text("Name", pinned=True, width=150),
            "folder": text("Folder", width=190),
            "what": "Kind",
            "fits": text("Trained from", width=245, help=ORIGIN_HELP),
            "architecture": "Architecture",
            "format": "Format",
            "names": "Tensor names",
            "activation": "Activation",
            "dtype": "Type",
            "size": st.column_config.NumberColumn("Size", format="bytes"),
            "digest": text("Digest", help="First eight digits of the digest of the tensors."),
        }
        height = page_parts.table_height(len(rows), MAX_TABLE_HEIGHT)
        page_parts.draw_table(rows, "Models that can be merged, with their properties", columns, height)
    _draw_digests(models)
    _draw_unreadable(models)
    with st.container(horizontal=True, vertical_alignment="center"):
        if models.others:
            st.caption(
                f"Left out because they are not checkpoints: {page_text.safe_text(first_few(models.others), 400)}."
            )
        if models.data_sets:
            data_set_count = plural(len(models.data_sets), "data set")
            st.caption(
                f":material/photo_library: {data_set_count} in these folders: make a benchmark of them under data."
            )
        st.button("Refresh", on_click=model_files.list_again, type="tertiary", icon=":material/refresh:")
    _draw_upload_deletion(models)


def _draw_digests(models: ListedModels) -> None:
    """Draw a button that reads large files in the background for their digests, or the progress of that job."""
    files_without_digest = [item for item, facts in models.readable if not model_files.file_digest(facts)]
    job_subject = fit_report.job_subject("", {item.key: item.reference for item in files_without_digest})
    job = fit_report.find_job(DIGEST_JOB, job_subject)
    if job is not None and (job.is_live or job.error):
        tray.draw_job(job, "digests")
    elif files_without_digest and permissions.is_allowed(VisitorAction.COMMAND):
        size = sum(facts.nbytes for item, facts in models.readable if item in files_without_digest)
        st.button(
            f"Compute {plural(len(files_without_digest), 'digest')}", icon=":material/fingerprint:",
            on_click=_queue_digests,
            args=(job_subject, [item.reference for item in files_without_digest]), key="start_digests",
            help=f"Reads {size_text(size)} in the background, once.",
        )  # fmt: skip


@click_errors.guard_callback
def _queue_digests(subject: str, references: Sequence[str]) -> None:
    title = f"Digests of {plural(len(references), 'file')}"
    page_data.job_queue().command(DIGEST_JOB, subject, title, ["digest", *references])


def _draw_unreadable(models: ListedModels) -> None:
    """Draw a list of the files that are named like checkpoints but cannot be read, with the reasons."""
    if not models.unreadable:
        return
    file_count = len(models.unreadable)
    st.markdown(f":material/error: **{plural(file_count, 'file')} cannot be read:**")
    lines = []
    for item, facts in models.unreadable:
        reason = facts.problem.removeprefix(f"{item.path.name}: ")
        lines.append(f"- **{page_text.safe_text(item.listed_path, 120)}**: {page_text.safe_text(reason, 300)}")
    st.markdown("\n".join(lines[:FIRST_UNREADABLE]))
    if remaining_lines := lines[FIRST_UNREADABLE:]:
        with st.expander(f"{plural(len(remaining_lines), 'more file')}"):
            st.markdown("\n".join(remaining_lines[:MAX_UNREADABLE]))
            if len(remaining_lines) > MAX_UNREADABLE:
                st.caption(f"and {len(remaining_lines) - MAX_UNREADABLE:,} more")


def _draw_upload_deletion(models: ListedModels) -> None:
    """Draw the buttons that delete uploads."""
    uploads = [item for item, _ in models.own_files if item.listed_path.startswith("uploads/")]
    if not uploads or not model_files.is_local():
        return
    with st.popover("Delete uploads", icon=":material/delete:", type="tertiary"):
        for item in uploads:
            size = size_text(sum(facts.nbytes for own_file, facts in models.own_files if own_file is item))
            st.button(
                f"Delete {clean_text(item.name, 40)} ({size})", key=f"upload_{item.key}", on_click=_delete_upload,
                args=(item.reference,),
            )  # fmt: skip


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete_upload(reference: str) -> None:
    """Callback: delete an upload."""
    from merging.sharing.catalog import uploaded_models

    root = page_data.store().root
    for item in uploaded_models.list_uploads(root):
        if item.reference == reference:
            uploaded_models.delete_upload(root, item)
