"""The Features page: its views with and without features, filters, the lasso, links, and what can be taken away."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import tiny_library
from page_harness import charts, press, runs, select, words
from PIL import Image
from streamlit.testing.v1 import AppTest

import viz
from app.views.features import feature_tables, joint_tables
from app.views.features.feature_tables import Model
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_store, measurement_subject
from merging.study.runs import execute
from merging.study.runs.run import join_run_ids
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

MAPS, PERPLEXITIES, NUMBERS, DISTANCE, SALIENCY_BY_LAYER_KIND = (
    "maps",
    "perplexities",
    "separability",
    "distance to pretrained",
    "saliency by layer kind",
)
IMAGES = len(tiny.OUTSIDE) * tiny.CHOOSING
WANTED = ("Pretrained", "Expert for Digits", "Task Arithmetic w/ LwPTV", "Ties")


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with features and maps of the pretrained model, an expert and two runs."""
    folder = tiny_library.write(tmp_path_factory.mktemp("extracted"), ("task_arithmetic_lwptv", "ties", "emr"))
    store, benchmark = Store(folder / "measuring", libraries=(folder / "runs",), dated=False), Benchmark.load(folder)
    known = {run.title: run.id for run in store.list_runs()}
    for title in WANTED:
        for key in ("features", "tsne"):
            measure.measure(key, store, benchmark, known[title], context=Context(device="cpu"))
    together = join_run_ids(known[title] for title in ("Ties", "Pretrained", "Task Arithmetic w/ LwPTV"))
    measure.measure("joint_tsne", store, benchmark, together, context=Context(device="cpu"))
    measure.measure("merge_path", store, benchmark, known["Ties"], context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with features and maps in domain of the pretrained model and two runs."""
    folder = tiny_library.write(tmp_path_factory.mktemp("inside"), ("task_arithmetic_lwptv", "ties"))
    store, benchmark = Store(folder / "measuring", libraries=(folder / "runs",), dated=False), Benchmark.load(folder)
    known = {run.title: run.id for run in store.list_runs()}
    together = join_run_ids(known[title] for title in ("Ties", "Pretrained", "Task Arithmetic w/ LwPTV"))
    measure.measure("joint_tsne_in_domain", store, benchmark, together, context=Context(device="cpu"))
    measure.measure("merge_path_in_domain", store, benchmark, known["Ties"], context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


def chosen(folder: Path) -> str:
    known = runs(folder)
    return f"{known['Task Arithmetic w/ LwPTV'].id},{known['Ties'].id}"


def models(folder: Path) -> list[Model]:
    store, benchmark, known = Store(libraries=(folder / "runs",)), Benchmark.load(folder), runs(folder)
    found = [
        (known[title], measurement_store.find_measurement_result("features", store, benchmark, known[title].id))
        for title in WANTED
    ]
    return [Model(run, run.title, measured) for run, measured in found if measured is not None]


def circle(at: AppTest, *marks: tuple[str, str]) -> AppTest:
    """Run the page as after a lasso round marks (run, image) of the map."""
    return select(at, "feature_map", marks)


# The views


WITH = [
    (
        {"features_view": MAPS},
        1,
        1,
        "Checks: features given twice move by 0.000% of the width",
    ),  # the joint map, where it is stored
    ({"map": "joint t-SNE", "pictures": "true", "data_set": "Tiles"}, 1, 1, "so positions can be compared"),
    ({"map": "arrows"}, 1, 0, "The longest tenth of the arrows is emphasized"),
    (
        {"map": "arrows", "arrow_colors": "data set or class", "moved_images": "turned wrong"},
        1,
        0,
        "the farthest moved first",
    ),
    ({"map": "along the merge", "path_step": "50%"}, 1, 0, "Nothing is interpolated"),
    ({"map": "t-SNE alone"}, 1, 1, "Each was started from its positions on the joint map"),
    ({"features_view": MAPS, "map": "PCA"}, 1, 1, "The two principal components explain "),
    (
        {"features_view": MAPS, "map": "t-SNE alone", "perplexity": "5"},
        1,
        1,
        "neither the size of a cluster nor the distance",
    ),
    ({"features_view": PERPLEXITIES}, 1, 1, "neither the size of a cluster nor the distance"),
    (
        {"features_view": NUMBERS, "separability_metric": "silhouette"},
        1,
        0,
        "Computed from the features scaled to unit length",
    ),
    ({"features_view": DISTANCE}, 1, 0, f"n = {IMAGES} images of the choosing half, seed 0"),
    ({"features_view": DISTANCE, "data_set": "Tiles", "unit_length": "true"}, 1, 0, f"n = {tiny.CHOOSING} images"),
    ({"features_view": SALIENCY_BY_LAYER_KIND}, 2, 0, "before masks are shared"),
]


@pytest.mark.full
@pytest.mark.parametrize(("query", "drawn", "tables", "says"), WITH)
def test_view_with_features(
    look: Any, extracted: Path, query: dict[str, str], drawn: int, tables: int, says: str
) -> None:
    at = look("features", extracted, runs=chosen(extracted), **query)
    assert not at.exception
    assert not at.error
    assert at.title[0].value == "Features"
    assert (charts(at), len(at.dataframe)) == (drawn, tables)
    assert says in words(at)
    assert "Measure" not in [button.label for button in at.button]


def test_marks_are_colored_by_what_is_asked_about(look: Any, extracted: Path) -> None:
    at = look("features", extracted, runs=chosen(extracted))
    assert "Do out-of-domain data sets stay apart?" in [heading.value for heading in at.header]
    named = {trace["name"] for trace in json.loads(at.get("plotly_chart")[0].proto.spec)["data"]}
    assert {"Tiles", "Letters"} <= named
    at = look("features", extracted, runs=chosen(extracted), data_set="Letters", map="PCA")
    assert "Do out-of-domain classes stay apart?" in [heading.value for heading in at.header]
    named = {trace["name"] for trace in json.loads(at.get("plotly_chart")[0].proto.spec)["data"]}
    assert "letters 1" in named and not {"Tiles", "Letters"} & named


IN_DOMAIN = [
    ({"map": "joint t-SNE"}, "Do in-domain data sets stay apart?", "so positions can be compared"),
    ({"map": "arrows"}, "Where do images move when models are merged?", "The longest tenth of the arrows"),
    ({"map": "along the merge"}, "Do in-domain data sets stay apart?", "Nothing is interpolated"),
    ({"map": "PCA", "data_set": "Digits"}, "Do in-domain classes stay apart?", "The two principal components"),
    ({"features_view": NUMBERS}, "On which data sets are classes well separated?", "for each data set separately"),
    ({"features_view": DISTANCE}, "How far does each merge move", f"n = {len(tiny.EXPERTS) * tiny.CHOOSING} images"),
]


@pytest.mark.full
@pytest.mark.parametrize(("query", "asks", "says"), IN_DOMAIN)
def test_view_in_domain(look: Any, inside: Path, query: dict[str, str], asks: str, says: str) -> None:
    at = look("features", inside, runs=chosen(inside), image_domain="in domain", **query)
    assert not at.exception and not at.error
    assert charts(at) == 1 and says in words(at)
    assert any(heading.value.startswith(asks) for heading in at.header)
    assert "Paper and measurement" not in words(at)
    titles = {Benchmark.load(inside).find_task(key).title for key in tiny.EXPERTS}
    if query.get("features_view") != NUMBERS:
        assert set(at.selectbox(key="data_set").options) == {"all data sets", *titles}
    named = {trace["name"] for trace in json.loads(at.get("plotly_chart")[0].proto.spec)["data"]}
    assert not {"Tiles", "Letters"} & named


@pytest.mark.full
def test_a_merge_of_fewer_experts_is_named_in_domain(open_app: Any, inside: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(inside)
    some = dict(list(benchmark.experts.items())[:2])
    recipe = Recipe.build("task_arithmetic", {}, [], benchmark.pretrained, some)
    run = execute.execute(
        recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, context=Context(device="cpu")
    )
    at = open_app("features", inside, runs=run.id, image_domain="in domain")
    assert "out of domain for models with fewer experts" in words(at)
    at = open_app("features", inside, runs=chosen(inside), image_domain="in domain")
    assert "with fewer experts" not in words(at)


def test_maps_are_a_job_of_their_own(
    open_app: Any, library: Path, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    """With features but no t-SNE, PCA is there at once; the joint map and those of each model are offered."""
    known, store = runs(library), Store(tmp_path / "store", libraries=(library / "runs",))
    for title in ("Pretrained", "Ties"):
        measure.measure("features", store, Benchmark.load(library), known[title].id, context=Context(device="cpu"))
    at = open_app("features", library, runs=known["Ties"].id)
    assert charts(at) == 1
    assert "t-SNE maps" not in words(at)
    at = open_app("features", library, runs=known["Ties"].id, map="joint t-SNE")
    assert charts(at) == 0
    assert "One map of these models together has not been computed: **Pretrained** and **TIES" in words(at)
    press(at, "Measure")
    assert asked == [("joint_tsne", join_run_ids(sorted((known["Ties"].id, known["Pretrained"].id))))]
    at = open_app("features", library, runs=known["Ties"].id, map="t-SNE alone")
    assert charts(at) == 0
    assert "t-SNE maps have not been computed for **Pretrained** and **TIES (sum, λ 0.3)" in words(at).replace("\\", "")
    assert not at.exception
    both = f"{known['Ties'].id},{known['Task Arithmetic w/ LwPTV'].id}"
    at = open_app("features", library, runs=both, map="joint t-SNE")
    assert not at.exception  # the map of those with features is offered beside that of all
    assert sum(button.label.startswith("Measure") for button in at.button) >= 2


def test_a_run_with_features_comes_before_a_newer_one(open_app: Any, extracted: Path, tmp_path: Path) -> None:
    benchmark, known = Benchmark.load(extracted), runs(extracted)
    newer = Recipe.build(
        "task_arithmetic", {}, [("lwptv", {"prune_ratio": 0.5})], benchmark.pretrained, benchmark.experts
    )
    execute.execute(newer, Store(tmp_path / "store", libraries=()), benchmark=benchmark, context=Context(device="cpu"))
    at = open_app("features", extracted)
    assert known["Task Arithmetic w/ LwPTV"].id in at.multiselect(key="features_runs").value


def test_view_without_runs(look: Any, tiny_folder: Path) -> None:
    at = look("features", tiny_folder)
    assert not at.exception
    assert "There is no run yet" in words(at)


def test_runs_with_one_model_per_task_are_not_offered(look: Any, extracted: Path) -> None:
    at = look("features", extracted)
    assert not any("EMR" in option for option in at.multiselect(key="features_runs").options)


BAD_LINKS = [
    (
        {
            "features_view": "nowhere",
            "map": "x",
            "data_set": "None",
            "perplexity": "7",
            "classes": "y",
            "compared_expert": "z",
        },
        1,
    ),
    ({"runs": "000000000000,../../etc/passwd"}, 1),
    ({"features_view": SALIENCY_BY_LAYER_KIND, "expert": "nobody", "ratio": "9", "run": "000000000000"}, 2),
]


@pytest.mark.parametrize(("query", "drawn"), BAD_LINKS)
def test_bad_links_show_something_sensible(look: Any, extracted: Path, query: dict[str, str], drawn: int) -> None:
    at = look("features", extracted, **({"runs": chosen(extracted)} | query))
    assert not at.exception
    assert charts(at) == drawn


def test_a_link_restores_the_view(open_app: Any, extracted: Path) -> None:
    query = {"map": "t-SNE alone", "perplexity": "5", "data_set": "Letters", "compared_expert": "Digits"}
    at = open_app("features", extracted, runs=chosen(extracted), classes="letters 1", **query)
    assert not at.exception
    assert {key: str(at.selectbox(key=key).value) for key in ("perplexity", "data_set", "compared_expert")} == {
        key: query[key] for key in ("perplexity", "data_set", "compared_expert")
    }
    assert at.multiselect(key="classes").value == ["letters 1"]
    assert at.multiselect(key="features_runs").value == chosen(extracted).split(",")
    assert len(at.dataframe[0].value) == 4  # pretrained, expert, two runs


# The lasso


@pytest.mark.full
def test_circled_images_are_shown_with_predictions(open_app: Any, extracted: Path) -> None:
    at = open_app("features", extracted, runs=chosen(extracted), map="PCA")
    ties = next(model for model in models(extracted) if model.run.title == "Ties")
    images = ties.measurement.table("images")
    at = circle(at, *((ties.run.id, image) for image in images["image"][:3]))
    assert not at.exception
    assert "**3 images** chosen. After: **TIES (sum, λ 0.3)**" in words(at).replace("\\", "")
    for predicted in images["predicted"][:3]:
        assert f"after: {predicted}" in words(at)
    assert words(at).count("  \nbefore: ") == 3
    at = circle(at, *((ties.run.id, image) for image in images["image"]))
    said = [caption.value.partition("  \nbefore: ")[2].partition("  \nafter: ") for caption in at.caption]
    same = [before == after for before, _, after in said if after]
    assert len(set(same)) == 2 and same == sorted(same)  # those whose prediction changes come first
    at = circle(at, *((ties.run.id, image) for image in images["image"][:3]))
    at = circle(at)  # the empty selection that follows every redraw
    assert words(at).count("  \nbefore: ") == 3
    press(at, "Clear")
    assert "  \nbefore: " not in words(at)
    assert not at.exception


def test_arrows_and_lists_are_of_the_stored_moves(look: Any, extracted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(extracted))
    some = [model for model in models(extracted) if model.run.kind != "expert"]
    joint = joint_tables.find_joint_map(some)
    assert joint is not None and joint_tables.find_joint_map(some[1:]) is None
    table = joint_tables.build_moves_table(joint, some, "all", ())
    order, positions = joint.table("quality")["run"].tolist(), joint.array("positions").astype(float)
    for model in some[1:]:
        rows, features = table[table["run"] == model.run.id], model.measurement.array("features").astype(float)
        shifts = positions[order.index(model.run.id)] - positions[0]
        width = np.ptp(positions.reshape(-1, 2), axis=0).max()
        np.testing.assert_allclose(rows["move"], np.hypot(*shifts.T) / width, rtol=1e-6)
        np.testing.assert_allclose(rows[["x", "y"]].to_numpy() - rows[["x0", "y0"]].to_numpy(), shifts, atol=1e-6)
        first = some[0].measurement.array("features").astype(float)
        cosines = (features * first).sum(1) / np.linalg.norm(features, axis=1) / np.linalg.norm(first, axis=1)
        np.testing.assert_allclose(rows["displacement"], 1 - cosines, atol=1e-9)
        wrong = (rows["before"] == rows["truth"]) & (rows["predicted"] != rows["truth"])
        assert (rows["answer"] == "turned wrong").tolist() == wrong.tolist()
        listed = joint_tables.list_moved(table, model.run.id, "turned wrong")
        assert set(listed["image"]) == set(rows["image"][wrong]) and listed["move"].is_monotonic_decreasing
    at = look("features", extracted, runs=chosen(extracted), map="arrows")
    drawn = json.loads(at.get("plotly_chart")[0].proto.spec)["data"]
    assert {trace["name"] for trace in drawn} <= {
        "Moves", "Selected", "turned right", "turned wrong", "stayed right or wrong",
    }  # fmt: skip


def drawn_by(look: Any, extracted: Path, **query: str) -> tuple[str, list[dict[str, Any]]]:
    """The title of a map's legend, and its traces."""
    at = look("features", extracted, runs=chosen(extracted), **query)
    spec = json.loads(at.get("plotly_chart")[0].proto.spec)
    return spec["layout"]["legend"]["title"]["text"], spec["data"]


@pytest.mark.full
def test_arrows_have_the_colors_of_the_map(look: Any, extracted: Path) -> None:
    assert drawn_by(look, extracted, map="arrows")[0] == "Answer"
    one_class = {"data_set": "Letters", "classes": "letters 1"}
    for query, title in (({}, "Data set"), ({"data_set": "Tiles"}, "Class"), (one_class, "Class")):
        legend, arrows = drawn_by(look, extracted, map="arrows", arrow_colors="data set or class", **query)
        colors = [
            {trace["name"]: trace["marker"]["color"] for trace in traces if trace.get("customdata")}
            for traces in (arrows, drawn_by(look, extracted, map="joint t-SNE", **query)[1])
        ]
        assert legend == title and colors[0] == colors[1]


def test_arrowheads_lie_over_the_marks(look: Any, extracted: Path) -> None:
    traces = drawn_by(look, extracted, map="arrows")[1]
    is_head = ["lines+markers" in trace["mode"] for trace in traces if trace.get("xaxis", "x") == "x"]
    is_mark = [bool(trace.get("customdata")) for trace in traces if trace.get("xaxis", "x") == "x"]
    assert is_head.index(True) > max(place for place, mark in enumerate(is_mark) if mark)
    heads = next(trace["marker"] for trace in traces if "lines+markers" in trace["mode"])
    assert heads["opacity"] == 1 and heads["symbol"] == "arrow"  # sizes by mark make plotly's marks transparent


def test_the_way_of_a_merge_is_played_by_the_browser(look: Any, extracted: Path) -> None:
    at = look("features", extracted, runs=chosen(extracted), map="along the merge", path_step="50%")
    named = at.get("plotly_chart")[0].proto.spec
    at.toggle(key="path_playing").set_value(True).run()
    played = [chart.proto.spec for chart in at.get("plotly_chart")]
    assert not at.exception and not at.select_slider
    shares = (0, 17, 33, 50, 67, 83, 100)
    assert all(f" {share}% of the merge" in spec for share, spec in zip(shares, played, strict=True))
    assert "50% of the merge" in named and len(set(played)) == 7
    at.toggle(key="path_playing").set_value(False).run()
    assert at.select_slider(key="path_step").value == "50%" and charts(at) == 1


@pytest.mark.full
def test_images_circled_along_the_merge_are_shown(open_app: Any, extracted: Path) -> None:
    at = open_app("features", extracted, runs=chosen(extracted), map="along the merge", path_step="17%")
    ties, path = runs(extracted)["Ties"], measured_path(extracted)
    answers = path.table("answers")
    shares = sorted(set(answers["share"]))
    step = answers[answers["share"] == shares[1]].set_index("image")["predicted"]
    at = circle(at, *((ties.id, image) for image in step.index[:3]))
    assert not at.exception
    assert "**3 images** chosen. After: **TIES (sum, λ 0.3), 17% of the merge**" in words(at).replace("\\", "")
    assert all(f"after: {step[image]}" in words(at) for image in step.index[:3])


def measured_path(folder: Path) -> measurement_store.StoredMeasurement:
    """The models along the way of Ties."""
    found = measurement_store.find_measurement_result(
        "merge_path", Store(libraries=(folder / "runs",)), Benchmark.load(folder), runs(folder)["Ties"].id
    )
    assert found is not None
    return found


def test_images_in_place_of_marks_are_where_the_marks_are(extracted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(extracted))
    some = models(extracted)[:1]
    table = feature_tables.build_map_table(some, feature_tables.find_components(some, "all")[0]).head(1)
    table = pd.concat([table.assign(image="tiles:0"), table.assign(image="tiles:1", x=9.0)])
    (uri,) = joint_tables.draw_panel_pictures(table, True).values()
    opaque = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGBA"))[..., 3] > 0
    columns = np.flatnonzero(opaque.any(axis=0))
    middle = joint_tables.PANEL_PIXELS / 2
    assert columns.min() < middle / 4 and columns.max() > 7 * middle / 4  # at both ends of the panel
    assert abs(np.flatnonzero(opaque.any(axis=1)).mean() - middle) < 2


def test_images_that_would_cover_others_are_left_out() -> None:
    side = joint_tables.PICTURE_SHARE * 1.08  # of maps from 0 to 1, which have an edge around them
    places = [0.0, 1.0, 0.5, 0.5 + 0.5 * side, 0.5 + 1.5 * side]
    table = pd.DataFrame({"run": "a", "image": list("abcde"), "x": places, "y": places})
    table = pd.concat([table, table.assign(run="b", x=[0.0, 1.0, 0.2, 0.4, 0.6])])
    shown = joint_tables.thin_images(table, True)
    assert list(shown[shown["run"] == "b"]["image"]) == list("abcde")
    first = set(shown[shown["run"] == "a"]["image"])
    assert {"a", "b"} < first and len(first & {"c", "d"}) == 1
    far = pd.DataFrame({"run": "a", "image": np.arange(1451).astype(str), "x": np.arange(1451.0), "y": 0.0})
    spread = far.assign(x=far["x"] % 39, y=far["x"] // 39)
    assert len(joint_tables.thin_images(far, True)) < len(joint_tables.thin_images(spread, True)) <= 300
    for _, rows in shown.groupby("run"):
        xy = rows[["x", "y"]].to_numpy()
        gaps = np.abs(xy[:, None] - xy[None]).max(axis=2)[np.triu_indices(len(xy), 1)]
        assert gaps.min() > 0.8 * side - 1e-9


# Tables


def test_all_panels_show_the_same_images(extracted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(extracted))
    some = models(extracted)
    placed, shares = feature_tables.find_components(some, "all")
    table = feature_tables.build_map_table(some, placed)
    assert len(table) == len(some) * IMAGES
    assert table.groupby("image").size().eq(len(some)).all()
    assert 0 < sum(shares) <= 1
    name = feature_tables.read_images(some[0], "tiles")["truth"].iloc[0]
    one = feature_tables.build_map_table(some, feature_tables.find_components(some, "tiles")[0], "tiles", [name])
    assert set(one["task"]) == {"tiles"}
    assert set(one["truth"]) == set(one["group"]) == {name}
    assert (table[table["run"] == some[0].run.id]["predicted"] == table["before"][:IMAGES]).all()
    assert (table[table["run"] == some[0].run.id]["distance"] == 0).all()


def test_the_map_draws_its_table(extracted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(extracted))
    some = models(extracted)
    table = feature_tables.build_map_table(some, feature_tables.find_components(some, "all")[0])
    ring = table["image"][0]
    fig = viz.draw("feature_map", table, kind="PCA", shared=True, selected=[ring])
    drawn = pd.DataFrame(
        [
            (*picks, x, y)
            for trace in fig.data
            if trace.customdata is not None
            for picks, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
        ],
        columns=["run", "image", "x", "y"],
    )
    both = table[["run", "image", "x", "y"]].merge(drawn, on=["run", "image"], validate="one_to_one")
    assert len(both) == len(table)
    np.testing.assert_allclose(both[["x_x", "y_x"]], both[["x_y", "y_y"]], rtol=1e-5, atol=1e-6)
    assert [len(trace.x) for trace in fig.data if trace.name == "Selected"] == [1] * len(some)
    assert len({tuple(fig.layout[axis].range) for axis in fig.layout if axis.startswith("xaxis")}) == 1


def test_histograms_count_every_image_in_the_same_bins(extracted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(extracted))
    some = models(extracted)
    table = feature_tables.count_distances(some, "all", False)
    assert table.groupby("run")["count"].sum().eq(IMAGES).all()
    assert table.groupby("low")["high"].nunique().eq(1).all()
    base, other = (model.measurement.array("features").astype(np.float32) for model in (some[0], some[2]))
    mean = np.linalg.norm(other - base, axis=1).mean()
    assert table[table["run"] == some[2].run.id]["mean"].iloc[0] == pytest.approx(mean, rel=1e-5)
    fig = viz.draw("feature_distance", table)
    bars = next(trace for trace in fig.data if trace.name == some[2].label)
    np.testing.assert_allclose(bars.y, table[table["run"] == some[2].run.id]["share"], rtol=1e-6)
    assert feature_tables.count_distances(some[1:], "all", False).empty  # without the pretrained model


def test_features_can_be_taken_away(extracted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(extracted))
    some = models(extracted)
    with np.load(io.BytesIO(feature_tables.make_npz(some)), allow_pickle=False) as taken:
        assert list(taken["models"]) == [model.run.id for model in some]
        assert taken["image"].shape == (IMAGES,)
        for model in some:
            np.testing.assert_array_equal(taken[f"features_{model.run.id}"], model.measurement.array("features"))
