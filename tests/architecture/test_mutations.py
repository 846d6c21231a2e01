"""The lists of mutations stay alive: every change can still be made, and its tests are still there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import mutations
import pytest
from mutations import LISTS, ROOT, Mutation, read_lists
from patterns import change

MUTATIONS = read_lists()
FEWEST = 800
MODULE = """
LIMIT = 3

class Sums:
    def add(self, one, other):
        self.seen.add(one)
        if one < other and self.seen:
            return compute(one, other, start=0, stop=LIMIT) + 2
        return one + other
"""


def test_there_are_many_and_none_is_there_twice() -> None:
    assert len(MUTATIONS) >= FEWEST
    assert [each.text() for each, count in Counter(MUTATIONS).items() if count > 1] == []


def test_no_list_names_a_file_or_a_part_twice() -> None:
    """YAML would keep the last of them."""
    for path in LISTS.glob("*.yaml"):
        at = ""
        lines = []
        for line in path.read_text("utf-8").splitlines():
            at = line if line.startswith("merging/") else at
            lines += [at + line] if re.match(r"merging/|    [\w.]+:", line) else []
        assert [line for line, count in Counter(lines).items() if count > 1] == []


def test_every_room_is_broken_somewhere() -> None:
    rooms = {path.name for path in (ROOT / "merging").iterdir() if (path / "__init__.py").is_file()}
    assert sorted(rooms - {each.file.split("/")[1] for each in MUTATIONS}) == []


def test_every_change_has_one_place_and_leaves_a_program() -> None:
    problems = []
    for each in MUTATIONS:
        try:
            changed = each.changed((ROOT / each.file).read_text("utf-8"))
            if each.file.endswith(".py"):
                compile(changed, each.file, "exec")
        except (OSError, ValueError, SyntaxError) as error:
            problems.append(f"{each.text()}: {error}")
    assert problems == []


def test_every_test_path_exists() -> None:
    assert [each.text() for each in MUTATIONS if not each.paths] == []
    assert sorted({path for each in MUTATIONS for path in each.paths if not (ROOT / path).exists()}) == []


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("< -> <=", "one < other", "one <= other"),
        ("and -> or", "one < other and", "one < other or"),
        ("A + 2 -> A", ") + 2", ")"),
        ("A + B -> A - B (2 of 2)", "one + other", "one - other"),
        ("A and _ -> A", " and self.seen", ""),
        ("if A -> if not A", "one < other and self.seen", "not (one < other and self.seen)"),
        ("_.add(_) -> pass", "self.seen.add(one)", "pass"),
        ("compute(..., start=_) -> compute(...)", "start=0, ", ""),
        ("compute(A, B, ...) -> compute(B, A, ...)", "(one, other, s", "(other, one, s"),
        ("return A + B -> return B (2 of 2)", "return one + other", "return other"),
    ],
)
def test_a_pattern_changes_its_place_alone(text: str, old: str, new: str) -> None:
    assert MODULE.count(old) == 1
    assert ast.dump(ast.parse(change(MODULE, "Sums.add", text))) == ast.dump(ast.parse(MODULE.replace(old, new)))


def test_values_and_whole_modules_change() -> None:
    assert "LIMIT = 4" in change(MODULE, "LIMIT", "3 -> 4")
    assert "LIMIT = 4" in change(MODULE, "module", "3 -> 4")


@pytest.mark.parametrize(
    ("part", "text", "message"),
    [
        ("Sums.add", "A - B -> A", "there 0 times, not 1"),
        ("Sums.added", "< -> <=", "has no Sums.added"),
        ("Sums.add", "A + B -> A", "there 2 times, not 1"),
        ("Sums.add", "A + B -> A (1 of 3)", "there 2 times, not 3"),
        ("Sums.add", "A + B -> A (3 of 2)", "there 2 times, not 2"),
        ("Sums.add", "A < B -> A < C", "does not say what 'C' is"),
        ("Sums.add", "A < B -> A < gone", "called .'gone'."),
        ("Sums.add", "A < B -> A < B", "changes nothing"),
        ("Sums.add", "A <", "is not one expression"),
    ],
)
def test_a_stale_pattern_is_an_error(part: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change(MODULE, part, text)


def test_a_stale_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="occurs 2 times"):
        Mutation("f.csv", "text", "a -> b", "tests").changed("a a")


def test_a_digest_follows_the_file_and_its_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "m.py").write_text("a = 1\n")
    (tmp_path / "tests" / "test_m.py").write_text("pass\n")
    mutation = Mutation("m.py", "a", "1 -> 2", "tests/test_m.py::test_a -k a")
    digests = {mutation.digest(tmp_path)}
    for name in ("m.py", "tests/test_m.py"):
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        digests.add(mutation.digest(tmp_path))
    assert len(digests) == 3 and mutation.paths == ("tests/test_m.py",)
    assert mutations.caught_before(None) == mutations.caught_before(tmp_path / "none") == set()
