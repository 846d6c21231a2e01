"""Loads the methods of others: of packages with entry points, and of the files in the folder $MERGESCOPE_METHODS.

A file or package is registered as a whole or not at all; one that is broken is a ``LoadProblem`` in a list, and the
others are not affected. A file is executed from the bytes of which its digest is made, under a private name of a
module.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from merging.base import outside_code
from merging.base.errors import MethodError
from merging.base.outside_code import LoadProblem
from merging.base.text import printable
from merging.methods.method import REGISTERED, Method, add_method, collect_methods, find_problem, remove_method
from merging.methods.origins import ORIGINS, Origin, OriginKind

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Found = list[tuple[Method, int]]  # methods, with the lines on which they are registered


@dataclass
class _LoadedFile:
    """What became of a file: its methods, or a problem."""

    digest: str
    methods: list[Method] = field(default_factory=list)
    problem: LoadProblem | None = None


@dataclass
class LoadState:
    """Everything that was loaded in this process."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    is_loading: bool = False  # a file that asks for the list of methods does not start to load again
    is_loaded: bool = False
    packages: list[LoadProblem] = field(default_factory=list)
    folder: list[LoadProblem] = field(default_factory=list)
    files: dict[Path, _LoadedFile] = field(default_factory=dict)


load_state = LoadState()


def load() -> None:
    """Load the methods of others, once."""
    if not load_state.is_loaded:
        _load(packages=True)


def reload() -> None:
    """Load the methods of others that are not loaded yet; files that are new, changed or gone count from now on."""
    _load(packages=not load_state.is_loaded)


def list_problems() -> tuple[LoadProblem, ...]:
    """What could not be loaded, in the order in which it was tried."""
    files = [one.problem for one in tuple(load_state.files.values()) if one.problem is not None]
    return (*load_state.packages, *load_state.folder, *files)


def _load(packages: bool) -> None:
    with load_state.lock:
        if load_state.is_loading:
            return
        load_state.is_loading = True
        try:
            if packages:
                entries = outside_code.list_entry_points(outside_code.METHODS)
                found = [_load_package(entry) for entry in entries]
                load_state.packages = [problem for problem in found if problem is not None]
            files, load_state.folder = outside_code.list_method_files()
            for path in [path for path in load_state.files if path not in files]:
                _forget(path)
            for path in files:
                _load_file(path)
            load_state.is_loaded = True
        finally:
            load_state.is_loading = False


def load_file(path: Path) -> list[Method]:
    """The methods of one file, which need not be in the folder, registered.

    Raises:
        MethodError: the file is broken; the text has the file, the line and the reason.
    """
    with load_state.lock:
        _load(packages=not load_state.is_loaded)
        loaded = _load_file(path.absolute())
    if loaded.problem is not None:
        raise MethodError(str(loaded.problem))
    return loaded.methods


def _load_file(path: Path) -> _LoadedFile:
    """What becomes of a file; nothing changes if it is loaded already."""
    unread: LoadProblem | None = None
    source, found = b"", Found()
    try:
        source = path.read_bytes()
    except OSError as error:
        unread = LoadProblem(str(path), f"it cannot be read: {error.strerror}.")
    digest, known = hashlib.sha256(source).hexdigest(), load_state.files.get(path)
    if known is not None and known.digest == digest and unread is None:
        return known
    loaded = _LoadedFile(digest, problem=unread)
    if unread is None:
        try:
            found = _execute(path, source, digest)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            loaded.problem = outside_code.explain_failure(error, str(path), str(path))
    _forget(path)
    if loaded.problem is None:
        loaded.problem = _register(found, Origin(OriginKind.FILE, str(path), digest))
        loaded.methods = [] if loaded.problem else [method for method, _ in found]
    load_state.files[path] = loaded
    return loaded


def _execute(path: Path, source: bytes, digest: str) -> Found:
    """The methods that a file registers. What it prints goes to the errors, not among a command's results."""
    name = outside_code.short_name(f"{path} {digest}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their module up
    try:
        with collect_methods() as found, contextlib.redirect_stdout(sys.stderr):
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return found


def _load_package(entry: EntryPoint) -> LoadProblem | None:
    """Register the methods of an entry point: a method, or a module that registers some. Returns the problem if any."""
    place, module = outside_code.package_text(entry), entry.module
    try:
        with collect_methods() as found, contextlib.redirect_stdout(sys.stderr):
            value = entry.load()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return outside_code.explain_failure(error, place)
    if entry.attr:
        found = [(value, 0)]
    for (role, key), origin in tuple(ORIGINS.items()):  # of a module that was imported before this call
        if origin.kind is OriginKind.SESSION and origin.module == module:
            method = REGISTERED[role, key]
            remove_method(method)
            found += [] if entry.attr else [(method, 0)]
    return _register(found, Origin(OriginKind.PACKAGE, place, outside_code.package_digest(module), module))


def _register(found: Found, origin: Origin) -> LoadProblem | None:
    """Register all methods of one origin, or none of them; returns why not."""
    if not found:
        return LoadProblem(origin.place, "it calls register for no method.")
    added: list[Method] = []
    for method, line in found:
        try:
            problem = find_problem(method)
        except Exception as error:  # of an own class, or of a field that no check foresees
            problem = f"{type(error).__name__}: {printable(str(error), 200).rstrip('.')}"
        if problem:
            for one in added:
                remove_method(one)
            return LoadProblem(origin.place, f"{problem}.", line)
        add_method(method, origin)
        added.append(method)
    return None


def _forget(path: Path) -> None:
    """Take back the methods of a file."""
    if (loaded := load_state.files.pop(path, None)) is not None:
        for method in loaded.methods:
            remove_method(method)
