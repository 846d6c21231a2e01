"""Methods that are not ours on Merge and Methods: marked, escaped, run; broken ones are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import own_code
import pytest
from own_code import HALVES
from page_harness import press, run_until_idle, words

from app.reading import page_data
from merging.base import modes
from merging.base.outside_code import FOLDER_VARIABLE

MARKED = "My Halves (own method)"
HOSTILE = "Adds ![x](http://evil.example/x.png) <img src=x onerror=alert(1)> $x$."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The folder of one's own methods, with one in it."""
    path = tmp_path / "methods"
    path.mkdir()
    source = HALVES.replace("Adds a share of the mean.", HOSTILE).replace("Share of the", HOSTILE)
    (path / "halves.py").write_text(source)
    with own_code.nothing_loaded():
        monkeypatch.setenv(FOLDER_VARIABLE, str(path))
        yield path


def test_its_card_is_marked_and_shows_text_as_text(open_app: Any, library: Path, folder: Path) -> None:
    at = open_app("methods", library, method="my_halves")
    assert not at.exception and at.header[0].value == "My Halves"
    text = words(at)
    assert ":violet-badge[own method]" in text and "halves\\.py" in text
    assert MARKED in at.button_group(key="methods_merge").options
    assert "![x]" not in text and "<img" not in text.replace("\\<", "") and "Not loaded" not in text
    assert any("def halves(slot" in code.value for code in at.code)


def test_broken_ones_are_named_and_the_page_works(open_app: Any, library: Path, folder: Path) -> None:
    (folder / "broken.py").write_text("x = (\n")
    at = open_app("methods", library)
    assert not at.exception and at.header[0].value == "Task Arithmetic"
    (warning,) = at.warning
    assert warning.value.startswith("Not loaded:") and "broken" in warning.value and "line 1" in warning.value
    (folder / "broken.py").write_text(HALVES.replace("my_halves", "repaired").replace("My Halves", "Repaired"))
    at.run()
    assert not at.warning and "Repaired (own method)" in at.button_group(key="methods_merge").options


@pytest.mark.full
def test_a_merge_with_it(open_app: Any, library: Path, folder: Path) -> None:
    at = open_app("merge", library, chain="my_halves:share=0.25")
    assert not at.exception and at.slider[0].value == 0.25
    assert MARKED in next(one for one in at.selectbox if one.label == "Then merge with").options
    helps = [one.help for one in at.slider if one.label == "Share"]
    assert helps and "![x]" not in helps[0]
    assert "![x]" not in words(at)
    press(at, "Run")
    at = run_until_idle(at)
    (job,) = page_data.job_queue().list_jobs()
    assert page_data.store().get_run(job.subject).has_scores  # by a process of its own, under the same id
    first = job.subject
    (folder / "halves.py").write_text(HALVES + "# edited\n")
    at.run()
    press(at, "Run")
    run_until_idle(at)
    assert {one.subject for one in page_data.job_queue().list_jobs()} > {first}


def test_a_draft_with_a_method_that_is_gone(open_app: Any, library: Path, folder: Path) -> None:
    at = open_app("merge", library, chain="my_halves")
    (folder / "halves.py").unlink()
    at.run()
    assert not at.exception and "There is no merge called" in words(at).replace("\\", "")
    assert MARKED not in next(one for one in at.selectbox if one.label == "Then merge with").options


@pytest.mark.parametrize("mode", ["class", "read"])
def test_a_server_for_many_loads_no_folder(
    open_app: Any, library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv(modes.MODE_VARIABLE, mode)
    at = open_app("methods", library)
    monkeypatch.delenv(modes.MODE_VARIABLE)
    assert not at.exception and MARKED not in at.button_group(key="methods_merge").options
    assert "Several people use this server, so it loads no methods" in words(at).replace("\\", "")
    assert "halves" not in words(at)
