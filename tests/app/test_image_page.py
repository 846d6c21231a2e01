"""The Image page: every view, what it says in words, choosing and finding images, own pictures, and links."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_library
from compared_runs import LWPTV, TIES
from direct_bench import DirectPreviewProcess
from page_harness import chart_keys, chart_specs, charts, click, named, press, runs, serve_several, words
from PIL import Image
from streamlit.testing.v1 import AppTest

from app.reading import benchmark_images, previews
from app.reading import page_data as reading
from app.views.image import image_search, uploaded_picture
from merging.base.errors import TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.previews.preview_process import TableName
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from viz.chosen_names import FAINT

INSIDE, OUTSIDE = "digits:reporting:1", "letters:reporting:2"
VIEWS = {
    "answer by depth": ["image_lens"],
    "where it looks": ["image_attention", "image_attention_change"],
    "drift by patch": ["image_drift", "image_drift_grid"],
    "restore tokens": ["image_restore"],
    "occlude patches": ["image_occlude"],
    "neighbors": ["image_neighbors"],
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library in which two runs' depths are measured."""
    folder = tiny_library.write(tmp_path_factory.mktemp("measured"), ("task_arithmetic_lwptv", "ties"))
    store, benchmark = Store(folder / "measuring", libraries=(folder / "runs",), dated=False), Benchmark.load(folder)
    for title in (LWPTV, TIES):
        measure.measure("depths", store, benchmark, runs(folder)[title].id, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> DirectPreviewProcess:
    direct = DirectPreviewProcess()
    monkeypatch.setattr(previews, "preview_process", lambda: direct)
    return direct


@pytest.fixture
def show(open_app: Any, measured: Path, bench: DirectPreviewProcess) -> Any:
    """Open the page with two runs."""
    chosen = ",".join(runs(measured)[title].id for title in (TIES, LWPTV))

    def opened(**query: str) -> AppTest:
        at = open_app("image", measured, **({"runs": chosen, "image": OUTSIDE} | query))
        assert not at.exception
        return at

    return opened


def figures(at: AppTest) -> list[dict[str, Any]]:
    return [json.loads(spec) for spec in chart_specs(at)]


def png(size: tuple[int, int] = (40, 30), form: str = "PNG") -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(out, form)
    return out.getvalue()


# Views


def test_every_view_is_drawn_and_says_the_sentence(show: Any) -> None:
    at = show()
    says = "TIES (sum, λ 0.3) says “"
    for view, keys in VIEWS.items():
        at.segmented_control(key="image_view").set_value(view).run()
        assert not at.exception and not at.error
        assert chart_keys(at) == keys
        assert says in words(at).replace("\\", "") and "the pretrained model" in words(at)
        for figure in figures(at):
            assert figure["layout"]["meta"]["alt"].startswith(says)  # the sentence is the alternative text


def test_in_domain_a_run_is_held_against_the_expert(show: Any) -> None:
    at = show(image=INSIDE, image_view="drift by patch")
    assert "the expert for" in words(at)
    assert chart_keys(at) == VIEWS["drift by patch"]
    assert "more drift than 90% of the data set" in words(at)


@pytest.mark.full
def test_only_what_is_not_known_is_asked_for(show: Any, bench: DirectPreviewProcess) -> None:
    at = show()
    assert len(bench.asked) == 1
    at.run()
    assert len(bench.asked) == 1
    at.segmented_control(key="image_view").set_value("restore tokens").run()
    assert len(bench.asked) == 2
    at.segmented_control(key="image_view").set_value("answer by depth").run()
    assert not at.exception
    assert len(bench.asked) == 2  # its tables are kept
    assert chart_keys(at) == ["image_lens"]


@pytest.mark.full
def test_a_class_clicked_among_the_answers_is_marked_among_the_neighbors(show: Any) -> None:
    at = show(image=INSIDE)
    line = next(trace for trace in figures(at)[0]["data"] if str(trace.get("legendgroup")).startswith("class "))
    name = line["legendgroup"].removeprefix("class ")
    at = click(at, "image_lens", name)
    assert named(at, "class_name") == [name]
    faint = {trace["legendgroup"] for trace in figures(at)[0]["data"] if trace.get("opacity") == FAINT}
    assert faint and f"class {name}" not in faint
    assert "Chosen class" not in words(at)


@pytest.mark.full
def test_one_block_or_one_head_is_shown(show: Any) -> None:
    at = show(image_view="where it looks", block="0")
    block = figures(at)[0]
    assert "rollout" in block["layout"]["yaxis"]["ticktext"]
    at = show(image_view="where it looks", attention="rollout")
    assert all(name.startswith("block") for name in figures(at)[0]["layout"]["yaxis"]["ticktext"])
    at = show(image_view="where it looks", attention="<b>evil</b>", block="999", label_set="nothing", reference="x")
    assert chart_keys(at)[0] == "image_attention"


def test_single_tokens_are_restored_on_request(show: Any) -> None:
    at = show(image_view="restore tokens")
    at.toggle(key="image_single_tokens").set_value(True).run()
    assert chart_keys(at) == ["image_restore", "image_restore_tokens"]


@pytest.mark.full
def test_the_pretrained_model_can_read_out_for_all(show: Any, bench: DirectPreviewProcess) -> None:
    at = show()
    at.toggle(key="image_by_pretrained").set_value(True).run()
    assert chart_keys(at) == ["image_lens"]
    assert TableName("lens_by_pretrained", "pretrained") in bench.asked[-1].tables


def test_another_reference_and_other_classes(show: Any, bench: DirectPreviewProcess) -> None:
    at = show(image=INSIDE, reference="pretrained", label_set="letters")
    assert bench.asked[-1].head == "letters"
    assert {name.other for name in bench.asked[-1].tables if name.table == "restore"} == set()
    assert {name.other for name in bench.asked[-1].tables if name.table == "full_summary"} == {"pretrained"}
    assert "the pretrained model" in words(at)


@pytest.mark.full
def test_without_a_run_the_expert_and_the_pretrained_model_stay(show: Any) -> None:
    at = show(image=INSIDE)
    at.multiselect(key="imaged").set_value([]).run()
    assert not at.exception
    assert chart_keys(at) == ["image_lens"]


def test_a_table_that_cannot_be_made_says_why(
    show: Any, bench: DirectPreviewProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from merging.study.one_image import logit_lens

    def refused(*_: Any) -> None:
        raise TaskError("There is <b>no</b> such thing.")

    monkeypatch.setattr(logit_lens, "lens_table", refused)
    at = show()
    assert "There is <b>no</b> such thing." in words(at).replace("\\", "").replace("&lt;", "<")
    assert charts(at) == 0


# Choosing


@pytest.mark.full
def test_the_link_names_the_image_and_the_pickers_follow(show: Any) -> None:
    at = show()
    assert at.selectbox(key="image_set").value == "letters"
    assert at.number_input(key="image_number").value == 2
    press(at, "Next")
    assert at.query_params["image"] == ["letters:reporting:3"] or at.query_params["image"] == "letters:reporting:3"
    at.selectbox(key="image_set").set_value("digits").run()
    assert at.number_input(key="image_number").value == 0 and not at.exception


@pytest.mark.full
def test_next_stays_within_the_class_and_random_is_repeatable(show: Any, measured: Path) -> None:
    labels = Benchmark.load(measured).load_images("letters", "reporting")[1]
    at = show()
    name = Benchmark.load(measured).find_task("letters").class_names[1]
    at.selectbox(key="image_class").set_value(name).run()
    press(at, "Next")
    assert labels[at.number_input(key="image_number").value] == 1
    seen = []
    for _ in range(2):
        at.number_input(key="image_seed").set_value(7).run()
        press(at, "At random")
        seen.append(at.number_input(key="image_number").value)
        assert at.number_input(key="image_seed").value == 8
    assert seen[0] == seen[1] and labels[seen[0]] == 1


@pytest.mark.parametrize("image", ["letters:reporting:100000", "../../etc/passwd"])
def test_a_bad_link_says_so_and_shows_another_image(show: Any, image: str) -> None:
    at = show(image=image)
    assert at.warning[0].value
    assert chart_keys(at) == ["image_lens"]


@pytest.mark.full
def test_images_are_found_and_opened(show: Any) -> None:
    at = show()
    opened = 0
    for question in (*image_search.ANSWER_QUESTIONS, *image_search.DEPTH_QUESTIONS):
        at.selectbox(key="question").set_value(question).run()
        assert not at.exception
        assert "of the reporting half. " in words(at), question
        if opened < 3 and (buttons := [button for button in at.button if button.label == "Open"]):
            name = str(buttons[-1].key).removeprefix("image_open_")
            buttons[-1].click().run()
            assert at.query_params["image"] in (name, [name])
            opened += 1
    assert opened == 3


def test_what_is_not_measured_can_be_measured(open_app: Any, library: Path, bench: DirectPreviewProcess) -> None:
    at = open_app("image", library, question="largest drift at depth")
    assert "Answers by depth have not been measured for" in words(at)
    assert "Measure" in [button.label for button in at.button]


def test_the_page_without_runs_shows_the_pretrained_model(
    open_app: Any, tiny_folder: Path, bench: DirectPreviewProcess
) -> None:
    at = open_app("image", tiny_folder)
    assert not at.exception
    assert chart_keys(at) == ["image_lens"]


# Own pictures


def test_an_own_picture_is_read_in_the_session_only(show: Any, bench: DirectPreviewProcess, tmp_path: Path) -> None:
    at = show()
    blank = np.zeros((16, 16, 3), np.uint8)
    at.session_state["_image_own"] = uploaded_picture.UploadedPicture("own:0123456789ab", blank, blank)
    at.run()
    assert not at.exception
    assert bench.asked[-1].pixels and not bench.asked[-1].image
    assert "the image has no label" in words(at) or "the answer of" in words(at)
    assert "own" not in str(at.query_params.get("image", ""))
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    press(at, "Close your picture")
    assert OUTSIDE in words(at).replace("\\", "")


@pytest.mark.full
def test_an_own_picture_of_another_benchmark_is_not_shown(show: Any, bench: DirectPreviewProcess) -> None:
    at = show()
    wider = np.zeros((24, 24, 3), np.uint8)
    at.session_state["_image_own"] = uploaded_picture.UploadedPicture("own:0123456789ab", wider, wider)
    at.run()
    assert not at.exception
    assert not bench.asked[-1].pixels and OUTSIDE in words(at).replace("\\", "")


def test_own_pictures_are_not_taken_where_several_work(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert uploaded_picture.UPLOAD_NOTE in words(show())
    serve_several(monkeypatch, "switch")
    at = show()
    assert uploaded_picture.NO_UPLOADS in words(at) and uploaded_picture.UPLOAD_NOTE not in words(at)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_pictures_are_cut_to_the_tower(measured: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(measured))
    picture = uploaded_picture.read_picture(png(form=form), "mine")
    size = Benchmark.load(measured).image_size
    assert picture.pixels.shape == (size, size, 3) and picture.original.shape == (30, 40, 3)
    assert picture.name.startswith("own:")
    wide = uploaded_picture.read_picture(png((900, 300), form), "mine")
    assert max(wide.original.shape) == uploaded_picture.COPY_SIZE


def test_sessions_share_the_images_of_a_data_set_and_cannot_change_them(
    tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "benchmark", lambda: tiny_benchmark)
    monkeypatch.setattr(reading, "current_digest", lambda: "of images that sessions share")
    for read in (benchmark_images.split_images, benchmark_images.split_labels):
        shared, same = read("letters", "reporting"), read("letters", "reporting")
        assert shared is same
        with pytest.raises(ValueError, match="read-only"):
            shared[0] = 0
