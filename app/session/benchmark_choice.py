"""The benchmark of this session, its key in links, and the switch to another one. Every cache key contains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import permissions
from app.session import address, run_choice, view_state
from merging.base import settings
from merging.base.files.short_digest import short_digest
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark_folders import SERVER  # the key of the benchmark that the server started on
from merging.tasks.pack_folders import pack_name

BENCHMARK_KEY, FOLDER_KEY, TYPED_FOLDERS_KEY = "_benchmark", "_benchmark_folder", "_benchmarks_typed"
TYPED_PREFIX = "typed:"  # of the key of a folder whose path was typed; only that session knows the folder
_FOLDER: ContextVar[Path | None] = ContextVar("benchmark", default=None)  # set: this folder, whatever the session's
_TEAMS = {"": "first team", "gentle": "gentle team"}


def benchmark_folder() -> Path:
    """The folder of the benchmark that this session works on."""
    if folder := _FOLDER.get():
        return folder
    if get_script_run_ctx(suppress_warning=True) is None:  # outside of any session
        return settings.benchmark_folder()
    path = st.session_state.get(FOLDER_KEY)
    return path if isinstance(path, Path) else settings.benchmark_folder()


@contextmanager
def use_folder(folder: Path) -> Iterator[None]:
    """Work on this benchmark while the block runs, whatever the session's is."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def bind_download(make_file: Callable[[], bytes]) -> Callable[[], bytes]:
    """``make_file`` for a download button: it runs outside of the session, but on this session's benchmark."""
    folder = benchmark_folder()

    def make_on_benchmark() -> bytes:
        with use_folder(folder):
            return make_file()

    return lambda: copy_context().run(make_on_benchmark)


def current_key() -> str:
    """The key of this session's benchmark in links."""
    return str(st.session_state.get(BENCHMARK_KEY, SERVER))


def benchmark_title(folder: Path) -> str:
    """A benchmark's title; untrusted text."""
    if folder == settings.BUNDLED_FOLDER:
        return "Bundled benchmark"
    if pack := pack_name(folder):
        return f"Benchmark of {pack}"
    return f"Bundled benchmark, {team_in_words(folder)}" if folder in settings.BUNDLED_TEAMS.values() else folder.name


def team_in_words(folder: Path) -> str:
    """The team of experts of a bundled benchmark."""
    return next(_TEAMS[team] for team, one in settings.BUNDLED_TEAMS.items() if one == folder)


def is_bundled(folder: Path | None = None) -> bool:
    """Whether a benchmark comes with the program; by default, this session's."""
    return (folder or benchmark_folder()) in settings.BUNDLED_TEAMS.values()


def packed_name() -> str:
    """The pack that describes this session's benchmark, without images and models; empty for a whole benchmark."""
    return pack_name(benchmark_folder())


def list_other_teams() -> list[Path]:
    """The other bundled benchmarks, which have the same images and other experts; none on a user's benchmark."""
    folders = benchmark_folders.list_bundled().values()
    return [folder for folder in folders if folder != benchmark_folder()] if is_bundled() else []


def benchmark_in_words() -> str:
    """This session's benchmark in a sentence; untrusted text."""
    title = benchmark_title(benchmark_folder())
    return f"the {title[0].lower()}{title[1:]}" if is_bundled() else f"the benchmark {title}"


def library_in_words() -> str:
    """The stored runs of this session's benchmark in two words; untrusted text."""
    if is_bundled():
        folder = benchmark_folder()
        return "bundled library" if folder == settings.BUNDLED_FOLDER else f"{team_in_words(folder)}'s library"
    return f"benchmark {benchmark_title(benchmark_folder())}"


def follow_link() -> str:
    """Switch to the benchmark that the link names, if there is one; returns the key if it is not found."""
    benchmark_key = view_state.value_from_link(address.BENCHMARK) or current_key()
    path = find_folder(benchmark_key)
    if path is None:
        st.session_state[BENCHMARK_KEY] = benchmark_key
        return benchmark_key
    if path != benchmark_folder():
        switch_benchmark(benchmark_key)
    else:
        _set_benchmark(benchmark_key, path)
    return ""


def find_folder(benchmark_key: str) -> Path | None:
    """The folder of a key in this session; None if there is none."""
    if benchmark_key.startswith(TYPED_PREFIX):
        return None if permissions.has_others() else st.session_state.get(TYPED_FOLDERS_KEY, {}).get(benchmark_key)
    return benchmark_folders.find_folder(benchmark_key, settings.store_root())


def switch_benchmark(benchmark_key: str) -> None:
    """Callback: switch to this benchmark, and forget the choices made on another one."""
    if (path := find_folder(benchmark_key)) is None:
        return
    if path != benchmark_folder():
        view_state.leave_benchmark()
        run_choice.forget_runs()
    _set_benchmark(benchmark_key, path)


def _set_benchmark(benchmark_key: str, path: Path) -> None:
    benchmark_key = SERVER if path == settings.benchmark_folder() else benchmark_key
    st.session_state[BENCHMARK_KEY], st.session_state[FOLDER_KEY] = benchmark_key, path
    view_state.write_parameter(address.BENCHMARK, "" if benchmark_key == SERVER else benchmark_key)


def find_key(folder: Path) -> str:
    """The key of a folder, including folders typed in this session; empty if it has none."""
    if listed_key := benchmark_folders.key_of(folder, settings.store_root()):
        return listed_key
    return next(
        (typed_key for typed_key, path in st.session_state.get(TYPED_FOLDERS_KEY, {}).items() if path == folder), ""
    )


def remember_typed(path: Path) -> str:
    """Remember a folder that was typed in this session, and return its key."""
    benchmark_key = f"{TYPED_PREFIX}{short_digest(str(path))}"
    st.session_state.setdefault(TYPED_FOLDERS_KEY, {})[benchmark_key] = path.resolve()
    return benchmark_key


def link_query() -> dict[str, str]:
    """The query that links to other pages must have."""
    return {} if current_key() == SERVER else {address.BENCHMARK: current_key()}
