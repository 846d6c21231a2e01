"""Methods of one's own: from a folder, from packages with entry points, and from a session; broken ones are named."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import own_code
import pytest
import torch
from own_code import HALVES

import merging
from merging.base import outside_code
from merging.base.errors import MethodError, RecipeError, UnknownMethodError
from merging.methods import own_methods, registry
from merging.methods.method import Citation, Merge, register
from merging.recipes.recipe import Recipe

BROKEN = {
    "syntax": ("def halves(:\n", ", line 1: it is not valid Python"),
    "import": ("\n\nimport nothing_of_that_name\n", "line 3: ModuleNotFoundError: No module named"),
    "exit": ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
    "empty": ("x = 1\n", "it calls register for no method."),
    "latin": (b"x = 'caf\xe9'\n", "it is not valid Python"),
    "taken": (HALVES.replace("my_halves", "ties"), "two merges have the key 'ties'"),
    "taken by an edit": (HALVES.replace("my_halves", "lwptv"), "the key 'lwptv' is that of an existing edit"),
    "earlier key": (HALVES.replace("my_halves", "weight_average"), "weight_average"),
    "key": (HALVES.replace("my_halves", "My Halves"), "the key 'My Halves' must be lower-case"),
    "field": (HALVES.replace("formula", "formular"), "line 19: TypeError"),
    "no method": (HALVES.replace("register(HALVES)", "register(halves)"), "line 23: register takes an Edit"),
    "title": (HALVES.replace("My Halves", "[My](http://x)"), "must be plain words"),
    "formula": (HALVES.replace('formula="x"', 'formula="$$ x"'), "without dollar signs"),
    "label": (HALVES.replace('label="Share"', 'label="<b>"'), "label and choices of my_halves.share"),
    "symbol": (HALVES.replace("label=", "symbol='$', label="), "the symbol of my_halves.share"),
    "label is a number": (HALVES.replace('label="Share"', "label=3"), "line 23: TypeError"),
    "params of ours": (
        HALVES.replace("class HalvesParams", "from merging.methods.merges.ties import TiesParams\nclass Unused")
        .replace("\n@dataclass(frozen=True, kw_only=True)\n", "\n")
        .replace("params=HalvesParams", "params=TiesParams"),
        "params of 'my_halves' are TiesParams itself",
    ),
    "default": (HALVES.replace("fraction(0.5", "fraction(1.5"), "the parameters of 'my_halves' must be fields"),
    "plain field": (HALVES.replace("    share", "    other: int = 1\n    share"), "the parameters of 'my_halves'"),
    "run": (HALVES.replace("run=halves", "run=3"), "run of 'my_halves' must be a function"),
    "address": (HALVES.replace("My Halves", "www.halves.org"), "must be plain words"),
    "algebra": (HALVES.replace("run=halves", "run=halves, algebra=lambda params: 1"), "algebra of 'my_halves' fails"),
    "second": (HALVES + HALVES.replace('title="My', 'title="Other'), "two merges have the key 'my_halves'"),
}


@pytest.fixture(autouse=True)
def nothing_loaded():
    """No methods of others before and after a test."""
    with own_code.nothing_loaded():
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of one's own methods."""
    path = tmp_path / "methods"
    path.mkdir()
    monkeypatch.setenv(outside_code.FOLDER_VARIABLE, str(path))
    return path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes an installed package with one module and entry points in a group of ours."""
    yield partial(own_code.install, tmp_path / "site", monkeypatch)
    own_code.forget_modules()


def problems():
    return [str(one) for one in own_methods.list_problems()]


def keys():
    return [method.key for method in registry.list_methods()]


def merged(key="my_halves", **params):
    base = {"visual.proj": torch.zeros(2, 2)}
    experts = {name: {"visual.proj": torch.full((2, 2), value)} for name, value in (("a", 1.0), ("b", 3.0))}
    return float(merging.merge(base, experts, key, params, device="cpu").state_dict["visual.proj"][0, 0])


def run_id(key="my_halves"):
    return Recipe.build(key, {}, [], "p", {"a": "x"}).run_id("0" * 64, {"a": "1" * 64})


def test_a_file_in_the_folder_is_a_method(folder):
    (folder / "halves.py").write_text(HALVES)
    (folder / "_helper.py").write_text("raise ValueError")
    assert merged() == 1.0 and merged(share=1.0) == 2.0
    assert "my_halves" in keys() and problems() == []
    origin = registry.find_merge("my_halves").origin
    assert origin.kind == "file" and str(origin) == str(folder / "halves.py")
    assert not list(folder.glob("__pycache__")) and not any(name == "halves" for name in sys.modules)


def test_the_list_is_the_same_whoever_asks_first(folder):
    (folder / "halves.py").write_text(HALVES)
    listed = keys()
    assert listed == keys() and listed.count("my_halves") == 1
    assert len(listed) == len(set(listed))


def test_without_a_folder_or_packages_there_are_only_ours(monkeypatch):
    monkeypatch.delenv(outside_code.FOLDER_VARIABLE, raising=False)
    assert all(method.origin is None and not method.source_digest for method in registry.list_methods())


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_and_nothing_else_suffers(folder, name):
    source, says = BROKEN[name]
    bad = folder / "a_bad.py"
    bad.write_bytes(source if isinstance(source, bytes) else source.encode())
    (folder / "good.py").write_text(HALVES.replace("my_halves", "my_others"))
    assert merged("my_others") == 1.0 and merged("ties") != 0
    (problem,) = problems()
    assert problem.startswith(str(bad)) and says in problem and problem.endswith(".")
    with pytest.raises(MethodError, match="a_bad"):
        own_methods.load_file(bad)
    with pytest.raises(UnknownMethodError, match="a_bad"):  # who asks for it learns why it is not there
        registry.find_merge("my_halves")


def test_two_files_with_one_key(folder):
    (folder / "a.py").write_text(HALVES)
    (folder / "b.py").write_text(HALVES.replace("0.5", "0.25"))
    assert merged() == 1.0
    assert [one.partition(": ")[0] for one in problems()] == [f"{folder / 'b.py'}, line 23"]


def test_a_folder_that_is_not_there(folder, monkeypatch):
    monkeypatch.setenv(outside_code.FOLDER_VARIABLE, str(folder / "none"))
    assert "ties" in keys() and "is not a folder that can be read" in problems()[0]


@pytest.mark.parametrize("variable, value", [("MERGESCOPE_MODE", "class"), ("MERGESCOPE_MODE", "read"),
                                             ("MERGESCOPE_SHARED", "1")])  # fmt: skip
def test_a_shared_server_loads_no_folder_but_packages(folder, package, monkeypatch, variable, value):
    (folder / "halves.py").write_text(HALVES.replace("my_halves", "from_folder"))
    package(HALVES)
    monkeypatch.setenv(variable, value)
    assert "my_halves" in keys() and "from_folder" not in keys()
    assert "Several people use this server" in problems()[0]
    assert str(folder) not in problems()[0]


def test_an_edited_file_gives_a_new_run_and_ours_keep_their_ids(folder):
    ours = run_id("ties")
    file = folder / "halves.py"
    file.write_text(HALVES)
    own_methods.reload()
    first = run_id()
    file.write_text(HALVES + "# a remark\n")
    assert run_id() == first  # until it is loaded again
    own_methods.reload()
    assert run_id() != first and run_id("ties") == ours
    file.write_text(HALVES)
    own_methods.reload()
    assert run_id() == first
    file.unlink()
    own_methods.reload()
    assert "my_halves" not in keys()


def test_a_file_that_was_broken_by_an_edit_is_no_method_any_more(folder):
    file = folder / "halves.py"
    file.write_text(HALVES)
    assert "my_halves" in keys()
    file.write_text(HALVES + "\n\n1 / 0\n")
    own_methods.reload()
    assert "my_halves" not in keys() and "ZeroDivisionError" in problems()[0]


def test_a_file_may_ask_for_the_methods_while_it_is_loaded(folder):
    (folder / "halves.py").write_text("import merging\n\nassert merging.list_methods()\n" + HALVES)
    assert merged() == 1.0


def test_what_a_file_prints_is_no_result(folder, capsys):
    (folder / "halves.py").write_text("print('loading')\n" + HALVES)
    assert "my_halves" in keys()
    assert "loading" not in capsys.readouterr().out


@pytest.mark.parametrize("entries", ["halves = lab_merges:HALVES", "all = lab_merges"])
@pytest.mark.parametrize("imported", [False, True])
def test_a_package_with_an_entry_point(package, entries, imported):
    package(HALVES, entries)
    if imported:  # such as by a notebook
        __import__("lab_merges")
    assert merged() == 1.0 and problems() == []
    assert str(registry.find_merge("my_halves").origin).startswith("lab-merges 1.2 (lab_merges")
    assert registry.find_merge("my_halves").origin.kind == "package"


def test_an_edited_package_gives_a_new_run(package):
    path = package(HALVES)
    keys()
    first = run_id()
    path.write_text(HALVES + "# a remark\n")
    outside_code.forget_entry_points()
    assert outside_code.package_digest("lab_merges") != registry.find_merge("my_halves").source_digest
    assert run_id() == first


@pytest.mark.parametrize(
    "source, entries, says",
    [
        (HALVES, "halves = lab_merges:NONE", "AttributeError: module 'lab_merges' has no attribute 'NONE'"),
        (HALVES, "halves = lab_nothing", "No module named 'lab_nothing'"),
        (HALVES, "halves = lab_merges:halves", "register takes an Edit, a Merge or an Adapt, not function"),
        ("1 / 0\n", "halves = lab_merges", "lab_merges.py, line 1: ZeroDivisionError"),
        ("x = 1\n", "halves = lab_merges", "it calls register for no method"),
    ],
)
def test_a_broken_package_is_named(package, source, entries, says):
    package(source, entries)
    assert "ties" in keys()
    (problem,) = problems()
    assert problem.startswith("lab-merges 1.2 (lab_") and says in problem


def test_installed_packages_are_read_once(package, monkeypatch):
    package(HALVES)
    assert "my_halves" in keys()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda: pytest.fail("read again"))
    own_methods.reload()
    assert "my_halves" in keys()


def own_merge(factor, title="In a session"):
    def run(slot, params, statistics):
        return factor * slot.task_vectors.mean(dim=0)

    cite = Citation(key="you", authors="You", title="Halves", venue="Unpublished", year=2026)
    return Merge(key="my_session", title=title, summary="A test.", formula="x", cite=cite, run=run)


def test_a_session_may_register_a_method_again():
    register(own_merge(1.0))
    assert merged("my_session") == 2.0
    register(own_merge(0.5, "Another title"))
    assert merged("my_session") == 1.0
    assert registry.find_merge("my_session").origin.kind == "session"
    with pytest.raises(MethodError, match="two merges have the key 'ties'"):
        register(registry.find_merge("ties"))


def test_other_processes_cannot_have_what_a_session_registers(folder):
    (folder / "halves.py").write_text(HALVES)
    register(own_merge(1.0))
    with pytest.raises(RecipeError, match=r"'my_session' is registered in this session only.*MERGESCOPE_METHODS"):
        Recipe.build("my_session").refuse_elsewhere()
    Recipe.build("my_halves", edits=["lwptv"]).refuse_elsewhere()


NOTEBOOK = """
import sys
sys.path.insert(0, {root!r})
from merging.methods import registry
from merging.methods.method import Citation, Merge, register

def cell(factor):
    names = {{"register": register, "Merge": Merge, "Citation": Citation, "__name__": "__main__"}}
    exec(f'''
def helper(x):
    return {{factor}} * x

def run(slot, params, statistics):
    return helper(slot.task_vectors.mean(dim=0))

register(Merge(key="my_cell", title="Cell", summary="A test.", formula="x", run=run,
           cite=Citation(key="you", authors="You", title="Cell", venue="Unpublished", year=2026)))
''', names)
    return registry.find_merge("my_cell").source_digest

digests = [cell(2), cell(3), cell(2)]
assert digests[0] == digests[2] != digests[1], digests
try:
    register(registry.find_merge("my_cell").__class__(key="ties", title="T", summary="S", formula="x",
             run=print, cite=registry.find_merge("my_cell").cite))
except ValueError as error:
    assert "two merges have the key 'ties'" in str(error)
else:
    raise AssertionError
print("fine")
"""


@pytest.mark.full
def test_a_notebook_registers_the_code_of_its_cells():
    """In a fresh process, where ``ties`` is not loaded yet: its key is taken all the same."""
    root = str(outside_code.OUR_FOLDER.parent)
    code = NOTEBOOK.format(root=root)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "fine", done.stderr


def test_workers_are_compared_by_the_methods_of_others_too(folder, package):
    assert not list(outside_code.own_sources())
    (folder / "halves.py").write_text(HALVES)
    package(HALVES)
    one = list(outside_code.own_sources())
    (folder / "halves.py").write_text(HALVES + "#\n")
    other = list(outside_code.own_sources())
    assert len(one) == 2 and one[0] == other[0] and one[1] != other[1]
