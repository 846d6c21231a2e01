"""The table of the address: what app code reads and binds is in it, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache

import pytest
from app_places import constants
from page_harness import MAIN

from app.session import address, view_state
from app.session.address import ADDRESS, KEYS, Parameter
from app.widgets import page_parts

NAMES = {value: name for name, value in vars(address).items() if name.isupper() and isinstance(value, str)}
FIRST = (  # take a key first
    view_state.value_from_link, view_state.resolve_value, view_state.pick_value, view_state.write_parameter,
    view_state.imply_parameter, view_state.resolve_available, view_state.pick_available, view_state.pick_available_from,
)  # fmt: skip
READERS = {function.__name__ for function in FIRST}
# The other words of these are keys.
LINKS = {function.__name__: function for function in (page_parts.draw_page_link, page_parts.draw_empty)}
# The third word of these is the key of a bound widget.
BINDING = {page_parts.pick_label.__name__, page_parts.pick_button.__name__}
TITLES = {
    title: name
    for entries in constants(MAIN)["SECTIONS"].values()  # type: ignore[attr-defined]
    for name, title, *_ in entries
}


@cache
def trees() -> dict[str, ast.Module]:
    """The code of the app by file, without the table."""
    files = {path.relative_to(MAIN.parent).as_posix(): path for path in sorted(MAIN.parent.rglob("*.py"))}
    return {name: ast.parse(path.read_text("utf-8")) for name, path in files.items() if name != "session/address.py"}


def named(node: ast.expr) -> str:
    """The key that an expression names as ``address.NAME`` or as text; empty for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "address":
        return str(getattr(address, node.attr, ""))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def uses() -> dict[str, set[str]]:
    """The keys that each file names as ``address.NAME``."""
    return {
        name: {named(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for name, tree in trees().items()
    }


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def read(tree: ast.Module) -> Iterator[str]:
    """The keys that a file reads from the query or writes into links and into it, where they are plain."""
    known = {name for link in LINKS.values() for name in inspect.signature(link).parameters} - {"query"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "st.query_params":
            yield named(node.slice)
        if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "st.query_params":
            yield named(node.left)
        if not isinstance(node, ast.Call):
            continue
        if node.args and (called(node) in READERS or ast.unparse(node.func) == "st.query_params.get"):
            yield named(node.args[0])
        if called(node) in LINKS:
            yield from (word.arg for word in node.keywords if word.arg and word.arg not in known)


def bound(tree: ast.Module) -> Iterator[ast.expr]:
    """What is the key of each widget of a file that is bound to the address."""
    for node in ast.walk(tree):
        words = {word.arg: word.value for word in node.keywords} if isinstance(node, ast.Call) else {}
        if "bind" in words:
            yield words["key"]
        elif isinstance(node, ast.Call) and called(node) in BINDING:
            yield node.args[2]


def own_files(page: str) -> list[str]:
    """The files that draw one page."""
    return [name for name in trees() if name == f"screens/{page}.py" or name.startswith(f"views/{page}/")]


def shared_files() -> list[str]:
    """The files that draw parts of several pages, or of all."""
    return [
        name for name in trees() if not name.startswith(("screens/", "views/")) or name.startswith("views/lessons/")
    ]


def test_keys_differ_and_say_what_they_are() -> None:
    assert len(KEYS) == len(ADDRESS)
    for one in ADDRESS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", one.key) and one.meaning[-1] == "." and one.key in NAMES


@pytest.mark.full
@pytest.mark.parametrize("one", ADDRESS, ids=lambda one: one.key)
def test_every_key_is_used_on_the_pages_that_it_names(one: Parameter) -> None:
    titles = [title for title in TITLES if re.search(rf"\b{re.escape(title)}\b", one.pages)]
    assert titles or one.pages.startswith("All")
    used = {name for name, keys in uses().items() if one.key in keys}
    assert used
    assert all(used & {*own_files(TITLES[title]), *shared_files()} for title in titles)


def test_all_that_is_read_is_in_the_table() -> None:
    found = {key: name for name, tree in trees().items() for key in read(tree) if key}
    assert {"run", "models_view", "frame", "lesson", "report_token", "selected_runs"} <= set(found)
    assert not {key: name for key, name in found.items() if key not in KEYS}


@pytest.mark.full
def test_the_table_says_which_keys_widgets_are_bound_to_and_on_which_pages() -> None:
    table, keys = {one.key: one for one in ADDRESS}, set()
    for name, tree in trees().items():
        for node in bound(tree):
            key = named(node)
            if not key:  # one of several that a loop names
                assert isinstance(node, ast.Name) and name in (
                    "views/conflicts/expert_pairs.py",
                    "widgets/page_parts.py",
                )
                continue
            assert table[key].bound, (name, key)
            pages = [title for title, page in TITLES.items() if name in own_files(page)]
            assert table[key].pages.startswith("All") or all(title in table[key].pages for title in pages), (name, key)
            keys.add(key)
    assert {one.key for one in ADDRESS if one.bound} - keys == {"first_expert", "second_expert"}
