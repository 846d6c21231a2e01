"""Folders put into the place of others: the old one stays until the new one is there, whoever dies in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from merging.base.files import atomic

DIE = """
import os, sys
from pathlib import Path
from merging.base.files import atomic
new, final = Path(sys.argv[1]), Path(sys.argv[2])
publish = atomic.publish
atomic.publish = lambda folder, place: (publish(folder, place) if {late} else None, os._exit(9))
atomic.replace(new, final)
"""


@pytest.fixture
def final(tmp_path: Path) -> Path:
    """A folder with an old file, in a folder of its own."""
    return folder(tmp_path / "root" / "entry", "old")


def folder(place: Path, text: str) -> Path:
    place.mkdir(parents=True)
    (place / "file").write_text(text)
    return place


def there(final: Path) -> tuple[str, int]:
    """What the file says, and how many entries there are beside it."""
    return (final / "file").read_text(), len(list(final.parent.iterdir()))


def die(final: Path, late: bool = False) -> None:
    new = folder(final.parent.parent / "new", "new")
    done = subprocess.run([sys.executable, "-c", DIE.format(late=late), str(new), str(final)], check=False)
    assert done.returncode == 9


def test_a_folder_is_replaced(final: Path, tmp_path: Path) -> None:
    assert atomic.replace(folder(tmp_path / "new", "new"), final)
    assert there(final) == ("new", 1)


def test_the_old_one_comes_back_if_the_new_one_cannot_take_its_place(final: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomic.replace(tmp_path / "nothing", final)
    assert there(final) == ("old", 1)


def test_nothing_stays_aside_where_another_writer_is_first(
    final: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes between the look at the final path and the rename to it."""
    exists = Path.exists

    def then_written(path: Path) -> bool:
        found = exists(path)
        if path == final and not found:
            folder(final, "theirs")
        return found

    with monkeypatch.context() as patch, pytest.raises(FileNotFoundError):
        patch.setattr(Path, "exists", then_written)
        atomic.replace(tmp_path / "nothing", final)
    assert there(final) == ("theirs", 1)


@pytest.mark.parametrize(("late", "text"), [(False, "old"), (True, "new")])
def test_the_sweep_puts_back_what_a_dead_process_had_put_aside(final: Path, late: bool, text: str) -> None:
    die(final, late)
    assert (final.exists(), len(list(final.parent.iterdir()))) == (late, 2 if late else 1)
    atomic.remove_leftovers(final.parent)
    assert there(final) == (text, 1)


def test_what_another_one_has_written_since_is_kept(final: Path) -> None:
    die(final)
    folder(final, "newer")
    atomic.remove_leftovers(final.parent)
    assert there(final) == ("newer", 1)


def test_what_cannot_be_put_back_now_stays_aside(final: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die(final)

    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        atomic.remove_leftovers(final.parent)
    atomic.remove_leftovers(final.parent)
    assert there(final) == ("old", 1)
