"""The lists of mutations stay alive: every change can still be made, and its tests are still there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import mutations
import pytest
from mutations import ROOT, Mutation, read_lists

MUTATIONS = read_lists()
FEWEST = 150


def test_there_are_many_and_none_is_there_twice() -> None:
    assert len(MUTATIONS) >= FEWEST
    assert [each.text() for each, count in Counter(MUTATIONS).items() if count > 1] == []


def test_every_room_is_broken_somewhere() -> None:
    rooms = {path.name for path in (ROOT / "merging").iterdir() if (path / "__init__.py").is_file()}
    assert sorted(rooms - {each.file.split("/")[1] for each in MUTATIONS}) == []


def test_every_old_text_occurs_once_and_the_new_one_is_a_program() -> None:
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


def test_a_stale_text_is_an_error() -> None:
    mutation = Mutation("merging/base/version.py", "no such text", "x", "tests/architecture")
    with pytest.raises(ValueError, match="occurs 0 times"):
        mutation.changed("__version__ = 1\n")
    with pytest.raises(ValueError, match="occurs 2 times"):
        Mutation("f", "a", "b", "tests").changed("a a")


def test_a_digest_follows_the_file_and_its_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "m.py").write_text("a = 1\n")
    (tmp_path / "tests" / "test_m.py").write_text("pass\n")
    mutation = Mutation("m.py", "1", "2", "tests/test_m.py::test_a -k a")
    digests = {mutation.digest(tmp_path)}
    for name in ("m.py", "tests/test_m.py"):
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        digests.add(mutation.digest(tmp_path))
    assert len(digests) == 3 and mutation.paths == ("tests/test_m.py",)
    assert mutations.caught_before(None) == mutations.caught_before(tmp_path / "none") == set()
