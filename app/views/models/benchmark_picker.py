"""The current benchmark of a session: its contents, and a picker that switches to another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.permissions import requires
from app.reading import benchmark_images, listed_models, page_data, samples
from app.session import benchmark_choice, click_errors
from merging.base import settings
from merging.base.errors import MergingError, TaskError
from merging.base.modes import VisitorAction
from merging.base.text import first_few
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark_folders import BUNDLED, SERVER
from merging.models.model_references import OWN_PREFIX
from viz.figure_text import clean_text, span

if TYPE_CHECKING:
    from merging.sharing.catalog.model_listing import CatalogEntry

PICKER_KEY, NOTICE_KEY, FOLDER_KEY = "benchmark_picked", "benchmark_said", "benchmark_moved"
FINDING_NOTE = "Looking for the files. Large ones are read whole to compare them, which can take minutes:"
BENCHMARK_HELP = (
    "Scores, exemplars, measurements, sweeps and charts belong to this benchmark. Runs scored on another one are not "
    "shown. The choice applies to this session, and links include it."
)


def list_benchmarks(benchmark_entries: Sequence[CatalogEntry]) -> dict[str, Path]:
    """{key: folder} of the benchmarks that this session offers: the server's, the user's own and listed ones."""
    built = benchmark_folders.list_built(page_data.store().root)
    choices = {SERVER: settings.benchmark_folder(), **benchmark_folders.list_bundled(), **built}
    whole = [page_data.find_digest(folder) for key, folder in choices.items() if not key.startswith(OWN_PREFIX)]
    for key, folder in benchmark_folders.list_packed(page_data.store().root).items():
        if folder not in choices.values() and not any(digest.startswith(folder.name) for digest in whole):
            choices[key] = folder
    for item in benchmark_entries:
        if item.path.resolve() not in [path.resolve() for path in choices.values()]:
            choices[remember_folder(item)] = item.path.resolve()
    return choices


def remember_folder(item: CatalogEntry) -> str:
    """The key of a listed benchmark folder in this session."""
    is_listed = benchmark_folders.find_folder(item.reference, page_data.store().root)
    return item.reference if is_listed else benchmark_choice.remember_typed(item.path)


def draw_chooser(benchmark_entries: Sequence[CatalogEntry]) -> None:
    """Draw a picker of the benchmark, and the contents of the chosen one."""
    st.header("Which benchmark is everything measured on?", anchor=False)
    choices = list_benchmarks(benchmark_entries)
    current = benchmark_choice.current_key()
    if current not in choices:  # typed earlier, but not listed now
        choices[current] = benchmark_choice.benchmark_folder()
    st.session_state[PICKER_KEY] = current
    with st.container(border=True):
        st.selectbox(
            "Benchmark", list(choices), format_func=lambda key: _make_label(key, choices[key]), key=PICKER_KEY,
            help=BENCHMARK_HELP, on_change=_switch_benchmark, width=420,
        )  # fmt: skip
        _draw_contents()
        if listed_models.is_local():
            _draw_delete(choices)
    if notice := st.session_state.pop(NOTICE_KEY, ""):
        st.info(page_text.safe_text(notice, 300))


def _make_label(key: str, folder: Path) -> str:
    origin = {SERVER: "", BUNDLED: "", "own": "your own", "models": "listed", "typed": "typed", "pack": "pack"}.get(
        key.partition(":")[0], ""
    )
    return clean_text(benchmark_choice.benchmark_title(folder), 60) + (f"  ·  {origin}" if origin else "")


def _switch_benchmark() -> None:
    """Callback: switch to the picked benchmark."""
    benchmark_choice.switch_benchmark(st.session_state[PICKER_KEY])


def _draw_contents() -> None:
    """Draw the tasks, images and experts of the current benchmark in a few lines."""
    try:
        benchmark = page_data.benchmark()
        counts = [benchmark.count_images(task.key, page_data.SCORED_SPLIT) for task in benchmark.tasks]
        digest = benchmark.digest
    except (MergingError, OSError) as error:
        st.error(page_text.safe_text(error, 600), icon=":material/error:")
        return
    lines, pixels = [], benchmark.image_size
    if pack := benchmark_choice.packed_name():
        lines.append(
            f"{page_text.safe_text(pack, 80)} has results on this benchmark, but no images, heads or models. What "
            "needs them can be done where the benchmark itself is."
        )
    for words, has_expert in (("With an expert", True), ("Out of domain for every merge", False)):
        tasks = [task for task in benchmark.tasks if task.has_expert == has_expert]
        if titles := [clean_text(page_text.correct_titles(task.title), 40) for task in tasks]:
            lines.append(f"{words}: {page_text.safe_text(first_few(titles, 10), 600)}.")
    lines.append(
        f"Images of {pixels} × {pixels} pixels, {span(counts)} of each data set to report on. Digest {digest[:8]}."
    )
    if sampling_note := samples.sampling_in_words():
        lines.append(f"To report on: {sampling_note}.")
    if any(task.is_referenced for task in benchmark.tasks):
        lines.append("The images stay in the files of the data sets and are decoded when a page needs them.")
    st.markdown("  \n".join(lines))
    _draw_missing()
    if any(task.has_expert for task in benchmark.tasks) and not page_data.references(digest, page_data.stored_runs()):
        st.caption(
            "The pretrained model and the experts have not been evaluated on it, so charts lack these bounds; "
            "`mergescope benchmark make --evaluate` adds them."
        )


def _draw_missing() -> None:
    """Draw a list of the missing files and models that the benchmark refers to, and a field for their folder."""
    from merging.images.benchmarks import model_search  # loads torch

    benchmark, problems = page_data.benchmark(), []
    for task in benchmark.tasks:
        try:
            benchmark.check_images([task.key])
        except TaskError as error:
            problems.append(str(error))
    problems += model_search.describe_missing_models(benchmark.folder)
    if problems:
        problem_list = "\n".join(f"- {page_text.safe_text(problem, 800)}" for problem in problems)
        st.warning(problem_list, icon=":material/folder_off:")
    if problems and listed_models.is_local():
        with st.form("find_files", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
            label, example = "Folder that holds these files now", "/home/me/data"
            st.text_input(label, key=FOLDER_KEY, max_chars=1000, placeholder=example, width=420)
            st.form_submit_button("Find them", on_click=_find_files, icon=":material/search:")


@click_errors.guard_callback
@requires(VisitorAction.PATH)
def _find_files() -> None:
    """Callback: search the typed folder for the files and models, and store their paths."""
    from merging.base.progress import Meter, Progress

    if not (typed := str(st.session_state.get(FOLDER_KEY, "")).strip()):
        return
    folder = Path(typed).expanduser()
    progress_bar = st.progress(0.0, FINDING_NOTE)

    def show_progress(progress: Progress) -> None:
        progress_bar.progress(progress.fraction, f"{FINDING_NOTE} {page_text.safe_text(progress.detail)}")

    try:
        problems = page_data.benchmark().relink_files(folder.resolve(), Meter(0, show_progress))
    finally:
        progress_bar.empty()
    benchmark_images.clear_images()
    if problems:
        raise TaskError(" ".join(problems))
    st.session_state[NOTICE_KEY] = "All files were found, and they are those that the benchmark was made from."


def _draw_delete(folders_by_key: dict[str, Path]) -> None:
    """Draw buttons that delete the user's own benchmarks."""
    own_benchmarks = {
        key: path
        for key, path in folders_by_key.items()
        if key.startswith(OWN_PREFIX) and key != benchmark_choice.current_key()
    }
    if not own_benchmarks:
        return
    with st.popover("Delete a benchmark of your own", icon=":material/delete:", type="tertiary"):
        st.caption("Its scores stay in the runs, which then belong to an unknown benchmark.")
        for key, path in own_benchmarks.items():
            st.button(
                f"Delete {clean_text(path.name, 40)}", key=f"unmake_{key}", on_click=_delete_benchmark, args=(key,)
            )


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete_benchmark(key: str) -> None:
    """Callback: delete one of the user's own benchmarks, unless a job uses it."""
    from merging.base.files import atomic
    from merging.base.files.disk import STORE_REMEDY, explain_os_errors

    path = benchmark_folders.list_built(page_data.store().root).get(key)
    if path is None:
        return
    if any(job.is_live and job.benchmark == str(path) for job in page_data.job_queue().list_jobs()):
        st.session_state[NOTICE_KEY] = f"A job is using {path.name}, so it was not deleted."
        return
    atomic.remove_entry(path)
    with explain_os_errors("Its description", STORE_REMEDY, "removed"):
        path.with_name(f"{path.name}.yaml").unlink(missing_ok=True)  # the file that it was made from
    st.session_state[NOTICE_KEY] = f"{path.name} was deleted."
