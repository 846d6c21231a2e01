"""The rules of the layout that import-linter cannot hold: sizes, sentences, names. Nothing here starts torch.

A rule is one test that lists every place where it is broken.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("merging", "viz", "app")
FEWEST_FILES, MOST_FILES, MOST_LINES, LONGEST_FUNCTION = 3, 20, 500, 60
WINGS = {
    "base", "tasks", "models", "images", "methods", "recipes", "engine", "study", "sharing", "teaching", "cli",
}  # fmt: skip
FACES = {"merging", "merging/sharing/export", "viz", "viz/report", "app/notebook"}  # their __init__.py hands names on
DOTTED = re.compile(r"(?:merging|viz|app)(?:\.\w+)+(?::\w+)?")


@cache
def files(*tops: str) -> tuple[Path, ...]:
    return tuple(sorted(path for top in tops for path in (ROOT / top).rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_merging_shows_eleven_wings() -> None:
    assert {path.relative_to(ROOT / "merging").parts[0] for path in files("merging")} == WINGS | {
        "__init__.py", "__main__.py",
    }  # fmt: skip


def test_a_folder_holds_neither_one_file_nor_many() -> None:
    counts = Counter(place(path.parent) for path in files(*ROOMS) if path.name != "__init__.py")
    del counts["merging"]  # the wings, and how the package is run
    for role in ("edits", "merges", "adapts"):
        assert counts.pop(f"merging/methods/{role}") >= FEWEST_FILES  # a method is one file, however many there are
    assert {name: n for name, n in counts.items() if not FEWEST_FILES <= n <= MOST_FILES} == {}


def test_a_folder_says_its_duty_and_nothing_else() -> None:
    folders = {path.parent for path in files(*ROOMS)}
    assert [place(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
    faces = {place(folder): parsed(folder / "__init__.py") for folder in folders}
    sentences = {name: (ast.get_docstring(face) or "").split("\n")[0] for name, face in faces.items()}
    assert [name for name, sentence in sentences.items() if not sentence.endswith(".")] == []
    assert [name for name, face in faces.items() if name not in FACES and len(face.body) > 1] == []


def test_files_and_functions_are_short() -> None:
    lines = {place(path): len(path.read_text("utf-8").splitlines()) for path in files(*ROOMS, "tests")}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
    functions = [
        (f"{place(path)}: {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for path in files(*ROOMS, "tests")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef)
    ]
    assert [(name, count) for name, count in functions if count > LONGEST_FUNCTION] == []


def test_a_class_name_is_used_once_in_merging() -> None:
    classes = Counter(
        node.name for path in files("merging") for node in parsed(path).body if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_a_module_binds_a_name_once() -> None:
    names = {
        path: Counter(name for node in parsed(path).body for name in bound(node)) for path in files(*ROOMS, "tests")
    }
    assert [(place(path), name) for path, counts in names.items() for name in counts if counts[name] > 1] == []


def bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [part.id for part in parts if isinstance(part, ast.Name)]


def test_no_private_name_crosses_a_file() -> None:
    assert [use for path in files(*ROOMS, "tests", "sample_data") for use in private_uses(path)] == []


def private_uses(path: Path) -> Iterator[str]:
    """The private names of other files that a file imports, takes from a module, or names in a string."""
    modules = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] in ROOMS):
            yield from (f"{place(path)}: {node.module}.{alias.name}" for alias in node.names if private(alias.name))
            modules |= {alias.asname or alias.name for alias in node.names if is_module(node.module or "", alias.name)}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            if private(node.attr):
                yield f"{place(path)}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[0], ast.Name):
            named = (
                node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            )  # setattr(module, "_name", ...)
            if node.args[0].id in modules and isinstance(named, str) and private(named):
                yield f"{place(path)}: {node.args[0].id}, {named!r}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            yield from (f"{place(path)}: {node.value}" for part in re.split("[.:]", node.value) if private(part))


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_module(package: str, name: str) -> bool:
    return (ROOT / package.replace(".", "/") / f"{name}.py").is_file()


def dotted_strings() -> list[tuple[str, str]]:
    """(file, string) for every string of the program that names a module of it, or something in one."""
    return [
        (place(path), node.value)
        for path in files(*ROOMS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value)
    ]


def test_every_dotted_string_resolves() -> None:
    strings = dotted_strings()
    assert {"merging.cli.commands.fit:digest", "merging.study.measurements.drift:measure_drift"} <= {
        dotted for _, dotted in strings
    }
    assert [(name, dotted) for name, dotted in strings if not resolves(dotted)] == []


def resolves(dotted: str) -> bool:
    """Whether there is such a module, and such a function, class or value in it."""
    module, _, name = dotted.partition(":")
    path = ROOT / module.replace(".", "/")
    source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    if not source.is_file():
        return False
    return not name or name in {found for node in parsed(source).body for found in bound(node)}


def test_nothing_directly_in_app_is_called_like_a_standard_module() -> None:
    # The folder app/ comes first on the path of the running app.
    names = {path.stem for path in (ROOT / "app").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names & (set(sys.stdlib_module_names) | {"merging", "viz"}) == set()


def test_every_part_that_is_redrawn_alone_is_guarded() -> None:
    unguarded = [place(path) for path in files("app") if "st.fragment" in path.read_text("utf-8")]
    assert unguarded == ["app/session/click_errors.py"]
