"""Which benchmark this session works on, how a link says so, and changing it. Everything cached is keyed by it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import text
from app.session import state
from merging import settings
from merging.benchmarks import folders
from merging.benchmarks.folders import SERVER
from merging.files.short_digest import short_digest
from viz.text import clean_text

CHOSEN, FOLDER, TYPED = "_benchmark", "_benchmark_folder", "_benchmarks_typed"
TYPED_PREFIX = "typed:"  # of a folder whose path somebody typed, which only that session knows


def folder() -> Path:
    """The folder of the benchmark that this session works on."""
    if get_script_run_ctx(suppress_warning=True) is None:  # nobody's session
        return settings.benchmark_folder()
    found = st.session_state.get(FOLDER)
    return found if isinstance(found, Path) else settings.benchmark_folder()


def key() -> str:
    """What links call it."""
    return str(st.session_state.get(CHOSEN, SERVER))


def title(of: Path) -> str:
    """What people call a benchmark; text of anybody's."""
    return "Bundled benchmark" if of == settings.BUNDLED else of.name


def enter() -> str:
    """Take over the benchmark that the link names, or go on with this session's; gives the key of one that is gone."""
    asked = state.linked(state.ON) or key()
    found = find(asked)
    if found is None:
        st.session_state[CHOSEN] = asked
        return asked
    if found != folder():
        use(asked)
    else:
        _note(asked, found)
    return ""


def find(asked: str) -> Path | None:
    """The folder that a key means in this session."""
    if asked.startswith(TYPED_PREFIX):
        return None if settings.shared() else st.session_state.get(TYPED, {}).get(asked)
    return folders.find(asked, settings.store_root())


def use(asked: str) -> None:
    """Callback: work on this benchmark from now on. What was chosen on another one is forgotten."""
    if (found := find(asked)) is None:
        return
    if found != folder():
        state.leave_benchmark()
    _note(asked, found)


def _note(asked: str, found: Path) -> None:
    st.session_state[CHOSEN], st.session_state[FOLDER] = asked, found
    state.write(state.ON, "" if asked == SERVER else asked)


def name_of(of: Path) -> str:
    """The key of a folder, also of one that was typed in this session."""
    if known := folders.key_of(of, settings.store_root()):
        return known
    return next((asked for asked, path in st.session_state.get(TYPED, {}).items() if path == of), "")


def typed(path: Path) -> str:
    """The key of a folder that was typed in this session."""
    asked = f"{TYPED_PREFIX}{short_digest(str(path))}"
    st.session_state.setdefault(TYPED, {})[asked] = path.resolve()
    return asked


def query() -> dict[str, str]:
    """What a link to another page has to carry."""
    return {} if key() == SERVER else {state.ON: key()}


def gone(asked: str) -> None:
    """Says that a link is on a benchmark that is not here, and offers the server's."""
    called = text.safe_text(asked.partition(":")[2] or asked, 60)
    st.warning(
        f"This link uses the benchmark “{called}”, which this machine does not have, or whose path was typed in "
        "another session. Scores are compared on one benchmark only, so nothing is shown.",
        icon=":material/link_off:",
    )
    label = f"Switch to {clean_text(title(settings.benchmark_folder()), 60)}"
    st.button(label, on_click=use, args=(SERVER,), type="primary")


def badge() -> None:
    """In the sidebar: what everything is measured on, where it is not what the server was started on."""
    if folder() != settings.benchmark_folder():
        st.markdown(f":material/dataset: On the benchmark **{text.safe_text(title(folder()), 60)}**")
