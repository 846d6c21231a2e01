"""Which functions of the app change what is stored, found in the source: they must ask whether visitors may."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Functions that change the disk, whatever they are called with.
BY_PATH = {
    "chmod", "hardlink_to", "mkdir", "mkdtemp", "rmdir", "rmtree", "symlink_to", "touch", "unlink", "write_bytes",
    "write_text", "makedirs", "copytree", "copyfile", "copy2",
}  # fmt: skip
OF_OS = {"os.link", "os.remove", "os.rename", "os.replace", "os.symlink", "shutil.move"}
OF_FILES = {
    f"merging.base.files.{name}"
    for name in (
        "atomic.remove_temporary", "atomic.make_temporary", "atomic.publish", "atomic.replace", "atomic.remove_entry",
        "atomic.remove_leftovers",
        "atomic.write_folder", "records.JsonRecords.remove", "records.JsonRecords.write", "records.write_bytes",
        "records.write_json", "records.write_text",
    )
}  # fmt: skip
# Modules of merging/ that store what visitors ask for; the others write into caches or are run by jobs.
KEEPING = (
    "images.benchmarks.benchmark", "images.benchmarks.image_decoding", "images.benchmarks.model_search",
    "images.benchmarks.referenced_images", "images.benchmarks.data_set_locations", "sharing.catalog",
    "teaching.poll_counts",
    "tasks.queue.turns", "sharing.measure_runs", "sharing.evaluator_program", "sharing.evaluator_session",
    "sharing.export.stored_exports", "sharing.published", "tasks.queue", "study.analysis.measurement_store",
    "study.previews",
    "study.runs.drafts", "study.runs.reference_models", "study.runs.run_store", "study.imported_scores",
    "study.run_queue",
    "study.sweeps.points", "study.sweeps.sweep_storage",
)  # fmt: skip
# What holds objects of those modules, by how it ends, and those of their methods that only read.
HOLDERS = (
    "benchmark", "damaged", "drafts", "files", "job_queue", "polls", "preview_process", "records", "runner", "sets",
    "store",
)  # fmt: skip
READING = {
    "charge", "close", "count_answers", "details", "find", "get", "is_open", "read", "run", "runs", "state",
}  # fmt: skip
ALSO = {("preview_process", "send_request"), ("benchmark", "relink_files")}  # computes; stores paths
QUEUE = "app.session.job_queue.SessionQueue"  # what page_data.job_queue() gives


@dataclass
class Function:
    """A function; ``calls`` are (name, what it is an attribute of), the names resolved by the imports of its module."""

    module: str
    name: str
    node: ast.FunctionDef
    calls: list[tuple[str, str]]


@cache
def functions(package: str) -> tuple[Function, ...]:
    """Every function and method of a package, or of a part of it."""
    found: list[Function] = []
    for path in sorted((ROOT / package).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found += functions_in(module, path.read_text("utf-8"))
    return tuple(found)


def functions_in(module: str, source: str) -> Iterator[Function]:
    """Every function and method of a module."""
    tree = ast.parse(source)
    known = _imported(tree)
    known |= {one.name: f"{module}.{one.name}" for one in tree.body if isinstance(one, ast.FunctionDef)}
    for one in tree.body:
        prefix = f"{module}.{one.name}." if isinstance(one, ast.ClassDef) else f"{module}."
        for node in one.body if isinstance(one, ast.ClassDef) else [one]:
            if isinstance(node, ast.FunctionDef):
                yield Function(module, f"{prefix}{node.name}", node, list(_names(node, known, prefix)))


def _imported(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname or one.name.partition(".")[0]: one.name for one in node.names}
    return found


def _names(node: ast.FunctionDef, known: dict[str, str], own: str) -> Iterator[tuple[str, str]]:
    """The functions that a function calls, or passes on as a callback."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in known:
            yield known[one.id], ""
        elif isinstance(one, ast.Attribute):
            base = one.value
            if isinstance(base, ast.Name) and base.id in known:
                yield f"{known[base.id]}.{one.attr}", ast.unparse(base)
            elif isinstance(base, ast.Name) and base.id == "self":
                yield f"{own}{one.attr}", "self"
            else:
                yield f".{one.attr}", ast.unparse(base)


def _is_primitive(name: str, base: str) -> bool:
    return name in OF_OS | OF_FILES or (name.rpartition(".")[2] in BY_PATH and base != "self")


def _is_held(name: str, base: str, methods: set[str]) -> bool:
    """Whether it is a method of what holds something stored: data.store().delete, self._files(job).remove."""
    called, holder = name.rpartition(".")[2], re.sub(r"\(.*\)$", "", base)
    return (called in methods and holder.endswith(HOLDERS)) or any(
        holder.endswith(end) and called == other for end, other in ALSO
    )


@cache
def writers() -> frozenset[str]:
    """The functions and methods of the keeping rooms that change the disk, also through others there."""
    rooms = sorted({name.partition(".")[0] for name in KEEPING})
    every = [one for room in rooms for one in functions(f"merging/{room}")]
    kept = [one for one in every if one.module.removeprefix("merging.").startswith(KEEPING)]
    found = {one.name for one in kept if any(_is_primitive(*call) for call in one.calls)}
    while True:
        methods = {name.rpartition(".")[2] for name in found | OF_FILES} - READING
        more = {
            one.name for one in kept if any(name in found or _is_held(name, base, methods) for name, base in one.calls)
        }
        if more <= found:
            return frozenset(found)
        found |= more


def writing_calls() -> dict[str, tuple[Function, list[str]]]:
    """{function of the app: what it calls that changes what is stored}; callbacks count as called."""
    known, found = writers(), {}
    methods = {name.rpartition(".")[2] for name in known} - READING
    app = {one.name: one for one in functions("app")}
    for one in app.values():
        hits = []
        for name, base in one.calls:
            queued = f"{QUEUE}.{name.rpartition('.')[2]}"
            if base == "page_data.job_queue()" and queued in app:
                continue  # that function asks
            if _is_primitive(name, base) or name in known or _is_held(name, base, methods):
                hits.append(f"{base}.{name.rpartition('.')[2]}".lstrip("."))
        if hits:
            found[one.name] = one, hits
    return found


def asks_permission(function: Function) -> bool:
    """Whether a function asks whether visitors may do that: by its decorator, or in its own body."""
    named = [ast.unparse(one) for one in function.node.decorator_list]
    return any(one.startswith("requires(VisitorAction.") for one in named) or any(
        name == "app.permissions.require" for name, _ in function.calls
    )
