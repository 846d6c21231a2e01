"""Exports of merged models: folders for Transformers or open_clip, written in the background, to download."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import listed_models, page_data
from app.session import click_errors
from app.widgets.jobs import refused_action, tray
from merging.base.errors import MergingError, StoreError
from merging.base.modes import VisitorAction
from merging.base.text import size_text
from merging.models.formats.model_sources import ModelRef
from merging.sharing.export import stored_exports
from merging.sharing.export.stored_exports import STORED_FORMAT, StoredExport
from merging.study.runs.run import Run
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    from merging.tasks.queue.job_records import Job

LIBRARY_NAMES = {"hf": "Transformers", "open_clip": "open_clip", STORED_FORMAT: "one file, original names"}
JOB_KIND_PREFIX = "export-"  # of the jobs' kinds
PROBLEM_KEY = "export_problem"
MAX_NOTED_RUNS = 10  # runs whose limits are shown before an export
MAX_ZIP_BYTES = 100_000_000  # bytes of an export that can be downloaded as a zip file; the archive is built in memory
ACTIVATION_OF_FILES = "from the files"
NO_HEAD = "no head: all heads in a folder"
HEADS_HELP = (
    "Each task has its own output layer, its head. Without a head, the export contains the merged model and a folder "
    "of all heads; with one, it is that task's model, which Transformers loads like the expert. The export replaces "
    "an earlier one of the run in the same folder."
)
ACTIVATIONS = (ACTIVATION_OF_FILES, "quick_gelu", "gelu")


def draw_exports(runs: Sequence[Run]) -> None:
    """Draw the form that starts an export, and the exports of these runs."""
    st.header("Export", anchor=False)
    runs = [run for run in runs if run.recipe_yaml]
    with st.container(border=True):
        if not refused_action.draw_refusal(VisitorAction.EXPORT):
            _draw_form(runs)
    for export, job in _list_exports(runs):
        _draw_export(export, job, runs)


def _draw_form(runs: Sequence[Run]) -> None:
    """Draw the fields for the library and the folder, and the button."""
    library, activation, task = _draw_network_options(runs) if all(run.network for run in runs) else _draw_options()
    folder = ""
    if listed_models.is_local() and len(runs) == 1:
        folder = st.text_input(
            "Folder", key="export_folder", max_chars=1000, placeholder="in the folder of this app, beside the runs",
            help="A new folder, or the folder of an earlier export. The path starts with / or ~.",
        ).strip()  # fmt: skip
        if PROBLEM_KEY not in st.session_state:  # else the message below the button states it
            _draw_target(folder, library)
    unfit_runs = [run for run in runs if run.per_task] if library == STORED_FORMAT else []
    if unfit_runs:
        st.caption("Merges with one model per task do not fit into one file; choose one of the libraries.")
    recomputed_count = sum(not run.has_model for run in runs)
    if recomputed_count:
        st.caption(f"The weights of {plural(recomputed_count, 'run')} are not stored; they are computed again first.")
    notes = {
        note for run in runs[:MAX_NOTED_RUNS] if library != STORED_FORMAT and (note := _describe_limits(run, library))
    }
    for note in sorted(notes):
        st.caption(
            f"{page_text.safe_text(note, 400)} On a command line, `--text-tower FILE` takes the text tower of another "
            "model."
        )
    st.button(
        f"Export {plural(len(runs), 'model')}" if len(runs) > 1 else "Export the model",
        type="primary", icon=":material/output:", key="export_start", on_click=_queue_exports,
        args=([(run.id, run.name) for run in runs], library, folder, activation, task), disabled=bool(unfit_runs),
    )  # fmt: skip
    if problem := st.session_state.pop(PROBLEM_KEY, ""):
        st.error(page_text.safe_text(problem, 400), icon=":material/error:")
    st.caption("On a command line:")
    folder_argument = folder or "merged"
    command_words = ["mergescope", "export", runs[0].id, "--out"]
    command_words += (
        [f"{folder_argument}/{stored_exports.MODEL_FILE}"]
        if library == STORED_FORMAT
        else [folder_argument, "--to", library]
    )
    command_words += [] if activation == ACTIVATION_OF_FILES else ["--activation", activation]
    command_words += ["--task", task] if task else []
    st.code(shlex.join(command_words), language="bash", wrap_lines=True)


def _draw_options() -> tuple[str, str, str]:
    """Draw the choices for CLIP; returns library, activation, and "" for the task, as CLIP's heads are not stored."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        library = st.segmented_control(
            "For", LIBRARY_NAMES, default="hf", format_func=LIBRARY_NAMES.__getitem__, key="export_to", required=True
        )
        activation = st.selectbox(
            "Activation", ACTIVATIONS, key="export_activation", width=170,
            help="Weights do not show whether a model was trained with QuickGELU. Choose it only if the files of the "
            "experts do not state it either; the model card then has a warning.",
        )  # fmt: skip
    return library, activation, ""


def _draw_network_options(runs: Sequence[Run]) -> tuple[str, str, str]:
    """Draw the choices for other networks; returns library, activation, and a task whose head every run stores."""
    task = ""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        library = st.segmented_control(
            "For", [key for key in LIBRARY_NAMES if key != "open_clip"], default="hf",
            format_func=LIBRARY_NAMES.__getitem__, key="export_network_to", required=True,
        )  # fmt: skip
        heads_by_run = [_read_stored_heads(run.id, run) for run in runs]
        tasks = [name for name in heads_by_run[0] if all(name in names for names in heads_by_run)]
        if tasks and library == "hf":
            task = st.selectbox(
                "With the head of", ["", *tasks], key="export_task", width=260, help=HEADS_HELP,
                format_func=lambda name: clean_text(name, 40) if name else NO_HEAD,
            )  # fmt: skip
    return library, ACTIVATION_OF_FILES, task


@st.cache_data(max_entries=200, show_spinner=False)
def _read_stored_heads(run_id: str, _run: Run) -> list[str]:
    """The experts whose heads a run stores."""
    from merging.models.team.task_heads_file import HEADS_FILE, read_heads

    try:
        return list(read_heads(_run.file(HEADS_FILE))) if HEADS_FILE in _run.files else []
    except (MergingError, OSError):
        return []


def _describe_limits(run: Run, library: str) -> str:
    """A sentence on the parts that an export of a run will lack; empty for whole CLIP models, and if unknown."""
    pretrained = run.recipe.pretrained if run.recipe else ""
    model = str(next(iter(run.model_paths.values()))) if run.has_model else ""
    if not pretrained or ModelRef(pretrained).is_on_hub:
        pretrained = ""
    states = page_data.file_state(model), page_data.file_state(pretrained)
    # Without stored weights, the pretrained file stands for the model: it has the same parts.
    return _describe_limits_cached(model or pretrained, pretrained, library, *states)


@st.cache_data(max_entries=200, show_spinner=False)
def _describe_limits_cached(
    model: str, pretrained: str, library: str, file: tuple[int, ...], base_file: tuple[int, ...]
) -> str:
    """A sentence on the parts that an export of a model will lack, cached while the files are in these states."""
    from merging.sharing.export.model_export import describe_limits

    for base_reference in dict.fromkeys((pretrained, "")):
        try:
            return describe_limits(model, base_reference or None, to=library) if model else ""
        except (MergingError, OSError):
            continue  # the pretrained model may be deleted; an export will report errors of the model itself
    return ""


def _find_refusal(folder: Path, library: str) -> str:
    """Why an export cannot be written to a folder; empty if it can."""
    from merging.sharing.export.destination import why_not_writable

    # An export replaces an earlier one. For a single file, the folder needs no check here.
    return why_not_writable(folder, overwrite=True) if library != STORED_FORMAT else ""


def _draw_target(folder: str, library: str) -> None:
    """Show the folder of the export before anything is written, or why the folder cannot be used."""
    if not folder:
        return
    try:
        path = stored_exports.resolve_typed_folder(folder)
    except StoreError as error:
        st.caption(page_text.safe_text(str(error), 600))
        return
    problem = _find_refusal(path, library)
    st.caption(page_text.safe_text(problem or f"It is written to {path}.", 600))


@click_errors.guard_callback
def _queue_exports(runs: Sequence[tuple[str, str]], library: str, folder: str, activation: str, task: str) -> None:
    """Callback: queue an export for each run."""
    root = page_data.store().root
    for run_id, title in runs:
        try:
            if folder:
                permissions.require(VisitorAction.PATH)
            path = stored_exports.resolve_typed_folder(folder) if folder else None
            if path is not None and (reason := _find_refusal(path, library)):
                raise StoreError(reason)
        except StoreError as error:
            st.session_state[PROBLEM_KEY] = str(error)
            return
        command_words = stored_exports.export_command(
            run_id, library, path or stored_exports.default_folder(root, run_id, library), page_data.job_queue().device
        )
        command_words += [] if activation == ACTIVATION_OF_FILES else ["--activation", activation]
        command_words += ["--task", task] if task else []
        head_note = f", head of {task}" if task else ""
        page_data.job_queue().command(
            f"{JOB_KIND_PREFIX}{library}",
            run_id,
            f"Export for {LIBRARY_NAMES[library]}: {title}{head_note}",
            command_words,
        )


def _list_exports(runs: Sequence[Run]) -> list[tuple[StoredExport, Job | None]]:
    """Finished and running exports of these runs, each with its job or None."""
    ids = {run.id for run in runs}
    jobs = {
        (job.subject, job.kind.removeprefix(JOB_KIND_PREFIX)): job
        for job in reversed(page_data.job_queue().list_jobs())
        if job.kind.startswith(JOB_KIND_PREFIX) and job.subject in ids
    }
    finished = {
        (export.run_id, export.target_key): export for export in stored_exports.list_exports(page_data.store().root)
    }
    queued = {key: StoredExport(*key, _find_target_folder(job)) for key, job in jobs.items()}
    exports_by_key = {key: export for key, export in (finished | queued).items() if key[0] in ids}
    return [(export, jobs.get(key)) for key, export in exports_by_key.items()]


def _find_target_folder(job: Job) -> Path:
    """The folder that an export job writes to."""
    path = Path(job.words[job.words.index("--out") + 1])
    return path.parent if path.name == stored_exports.MODEL_FILE else path


def _draw_export(export: StoredExport, job: Job | None, runs: Sequence[Run]) -> None:
    """Draw one export: its progress, or its files, card and download."""
    title = next(run.name for run in runs if run.id == export.run_id)
    key = f"{export.run_id}_{export.target_key}"
    if job is not None and (job.is_live or job.state != "done"):
        tray.draw_job(job, f"export_{key}")
        if job.is_live:
            return
    files = export.files  # those of an earlier export, if the last job failed
    if not files:
        return
    total = sum(size for _, size in files)
    with st.container(border=True, key=f"export_{key}"):
        st.markdown(
            f":material/check_circle: **{page_text.safe_text(title, 60)}** for {LIBRARY_NAMES[export.target_key]}, "
            f"{plural(len(files), 'file')}, {size_text(total)}."
        )
        if listed_models.is_local():
            st.code(str(export.folder), language=None, wrap_lines=True)
        with st.container(horizontal=True, vertical_alignment="center"):
            if total > MAX_ZIP_BYTES:
                st.caption(f"Larger than {size_text(MAX_ZIP_BYTES)}: copy it from the folder.")
            elif permissions.is_allowed(VisitorAction.EXPORT):
                st.download_button(
                    "Download (zip)", lambda: zip_export(export), f"{export.run_id}-{export.target_key}.zip",
                    "application/zip", key=f"zip_{key}", on_click="ignore", icon=":material/download:",
                )  # fmt: skip
            is_in_store = export.folder.parent == page_data.store().root.absolute() / stored_exports.FOLDER
            if listed_models.is_local() and is_in_store:
                st.button(
                    "Delete this export", key=f"unexport_{key}", type="tertiary", on_click=_delete, args=(export,)
                )
        with st.expander("Files and model card", icon=":material/description:"):
            rows = [{"File": clean_text(name, 120), "Size": size_text(size)} for name, size in files]
            st.dataframe(rows, hide_index=True, alt="Files of the export", height="content")
            if card := export.read_card():
                st.code(card, language=None, height=320, wrap_lines=True)


def zip_export(export: StoredExport) -> bytes:
    """The files as one zip archive; paths begin with the export's name."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, _ in export.files:
            archive.write(export.folder / name, f"{export.run_id}-{export.target_key}/{name}")
    return target.getvalue()


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete(export: StoredExport) -> None:
    """Callback: delete an export, and dismiss the job that wrote it."""
    root = page_data.store().root
    stored_exports.delete_export(root, export)
    for job in page_data.job_queue().list_jobs():
        if job.subject == export.run_id and job.kind == f"{JOB_KIND_PREFIX}{export.target_key}" and not job.is_live:
            page_data.job_queue().dismiss(job.id)
