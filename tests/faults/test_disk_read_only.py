"""A store that cannot be written to: every page shows what is stored, and says why a click has no effect."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from faulty_disk import FaultyDisk, contents, fail_writing
from page_harness import charts, press, words
from streamlit.testing.v1 import AppTest

from app.reading import page_data
from merging.base.errors import StoreError
from merging.sharing.catalog.model_set_store import make_model_set, store_model_set
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store

SCREENS = sorted(path.stem for path in (Path(__file__).parents[2] / "app" / "screens").glob("[a-z]*.py"))
NOTICE = "The folder of your runs cannot be written to"


@pytest.fixture
def locked(tmp_path: Path, filled: Run) -> Iterator[FaultyDisk]:
    """The filled store on a disk that is mounted read-only; nothing in it changes."""
    before = contents(tmp_path / "store")
    with fail_writing(tmp_path / "store", errno.EROFS) as disk:
        yield disk
    assert contents(tmp_path / "store") == before


def says(at: AppTest, what: str) -> bool:
    """Whether the page says that something cannot be written, and how else."""
    assert not at.exception
    sentences = [str(error.value).replace("\\", "") for error in at.error]
    return any(what in text and "Read-only file system" in text and "MERGESCOPE_STORE" in text for text in sentences)


@pytest.mark.full
@pytest.mark.parametrize("page", SCREENS)
def test_every_page_shows_what_is_stored(open_app: Any, library: Path, filled: Run, locked: Any, page: str) -> None:
    at = open_app(page, library)
    assert not at.exception and not at.error
    assert NOTICE in words(at)
    if page == "scores":
        assert filled.id in at.multiselect(key="compare").options or charts(at) == 4


@pytest.mark.full
def test_run(open_app: Any, library: Path, locked: Any) -> None:
    at = press(open_app("merge", library, chain="ties:density=0.77"), "Run")
    assert says(at, "The job cannot be written")
    assert [job.kind for job in page_data.job_queue().list_jobs()] == ["export-hf"]


@pytest.mark.full
@pytest.mark.parametrize("page", ["drift", "conflicts", "features"])
def test_measure(open_app: Any, library: Path, locked: Any, page: str) -> None:
    at = open_app(page, library, conflicts_view="experts against experts")
    (button,) = (one for one in at.button if one.label == "Measure" or one.label.startswith("Measure, with one map"))
    assert says(button.click().run(), "The job cannot be written")


@pytest.mark.full
def test_the_buttons_of_a_run(open_app: Any, library: Path, filled: Run, locked: Any) -> None:
    at = open_app("models", library, models_view="runs", selected_runs=filled.id)
    for label, what in (
        ("Export the model", "The job cannot be written"),
        ("Drop the weights", f"Run {filled.id} cannot be written"),
        ("Delete 1 run", f"Run {filled.id} cannot be removed"),
        ("Dismiss", "The record of the job cannot be removed"),
    ):
        assert says(press(at, label), what), label
    assert page_data.store().get_run(filled.id).has_model


@pytest.mark.full
def test_the_buttons_of_sweeps(open_app: Any, library: Path, locked: Any) -> None:
    at = open_app("sweeps", library)
    at.text_input(key="sweep_rename").set_value("Another title").run()
    assert says(at, "The sweep cannot be written")
    assert says(press(at, "Delete"), "The sweep cannot be removed")


@pytest.mark.full
def test_the_buttons_of_models(
    open_app: Any, library: Path, tiny_family: tiny.Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_MODELS", str(tiny_family.pretrained.parent))
    folder = f"models:{tiny_family.pretrained.parent.name}"
    experts = {name: f"{folder}/{name}.safetensors" for name in ("circles", "flags")}
    store_model_set(tmp_path / "store", make_model_set("Mine", f"{folder}/pretrained.safetensors", experts))
    with fail_writing(tmp_path / "store", errno.EROFS):
        at = open_app("models", library)
        for label, what in (
            ("Forget", "The set cannot be removed"),
            ("Add to the Merge page", "The set cannot be written"),
        ):
            assert says(press(at, label), what), label


def test_a_folder_that_can_be_written_to_is_not_mentioned(open_app: Any, library: Path) -> None:
    assert NOTICE not in words(open_app("home", library))


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda store, run: store.delete(run.id), "Run .* cannot be removed"),
        (lambda store, run: store.delete_models(run.id), "Run .* cannot be written"),
    ],
)
def test_the_store_says_so(filled: Run, locked: Any, act: Callable[..., None], what: str) -> None:
    store = Store(filled.path.parents[1], libraries=())
    with pytest.raises(StoreError, match=what):
        act(store, filled)
    assert store.get_run(filled.id).scores is not None
