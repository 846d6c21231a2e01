"""The Sweeps page: the form, a sweep while it comes about, the chosen point, and its run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from page_harness import charts, words
from streamlit.testing.v1 import AppTest
from swept_library import picker, run_library_sweep

from app.reading import page_data, sweeps
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps.sweep import LINE, PLANE, Axis, Sweep
from merging.tasks.queue.job_kinds import SWEEP
from merging.tasks.queue.job_records import Job, State, name_job

PAIR = ("circles", "digits")


def metrics(at: AppTest) -> list[str]:
    return [str(metric.value) for metric in at.metric]


def test_without_sweeps_the_form_is_shown(look: Any, library: Path) -> None:
    at = look("sweeps", library)
    assert not at.exception and not at.error
    assert charts(at) == 0
    said = words(at)
    assert "22 points" in said and "in the background" in said
    assert at.text_input(key="sweep_values lwptv.prune_ratio").value == "0:1:0.1"
    assert at.button(key="sweep_start")


def test_the_form_says_what_is_wrong_with_values(open_app: Any, library: Path) -> None:
    at = open_app("sweeps", library)
    at.text_input(key="sweep_values lwptv.prune_ratio").set_value("0, 1.5").run()
    assert "must be a number in" in at.error[0].value and "1\\.5" in at.error[0].value
    at.text_input(key="sweep_values lwptv.prune_ratio").set_value("a lot").run()
    assert "write values as" in at.error[0].value
    assert not [button for button in at.button if button.key == "sweep_start"]


def test_the_form_warns_of_choosing_on_the_reporting_half(open_app: Any, library: Path) -> None:
    at = open_app("sweeps", library)
    assert not at.warning
    at.button_group(key="sweep_split").set_value("reporting").run()
    assert "the reported accuracy is too optimistic" in at.warning[0].value


@pytest.mark.parametrize(("kind", "says"), [(LINE, "31 points"), (PLANE, "122 points")])
def test_the_form_offers_lines_and_planes(open_app: Any, library: Path, kind: str, says: str) -> None:
    at = open_app("sweeps", library)
    if kind == PLANE:
        at.multiselect(key="sweep_recipes").set_value(["task_arithmetic_lwptv"]).run()
    at.button_group(key="sweep_kind").set_value(kind).run()
    assert not at.exception and not at.error
    assert says in words(at)


def test_two_values_make_a_map(open_app: Any, library: Path) -> None:
    at = open_app("sweeps", library)
    at.multiselect(key="sweep_recipes").set_value(["task_arithmetic_lwptv"]).run()
    at.selectbox(key="sweep_axis1").set_value("task_arithmetic.scaling").run()
    at.text_input(key="sweep_values task_arithmetic.scaling").set_value("0.2, 0.4").run()
    assert not at.error
    assert "22 points" in words(at)


def test_the_form_keeps_what_was_entered_while_other_pages_are_looked_at(open_app: Any, library: Path) -> None:
    at = open_app("sweeps", library)
    at.multiselect(key="sweep_recipes").set_value(["ties", "task_arithmetic"]).run()
    at.selectbox(key="sweep_axis0").set_value("scaling").run()
    at.text_input(key="sweep_values scaling").set_value("0.1, 0.2").run()
    at.number_input(key="sweep_images").set_value(5).run()
    at.switch_page("screens/methods.py").run()
    at.switch_page("screens/sweeps.py").run()
    assert not at.exception and not at.error
    assert at.multiselect(key="sweep_recipes").value == ["ties", "task_arithmetic"]
    assert at.text_input(key="sweep_values scaling").value == "0.1, 0.2"
    assert at.number_input(key="sweep_images").value == 5
    assert "4 points" in words(at)


def test_starting_shows_the_sweep_and_its_job(open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    at = open_app("sweeps", library)
    monkeypatch.setattr(
        type(page_data.job_queue()), "sweep", lambda self, sweep_id, title: started.append((sweep_id, title))
    )
    at.text_input(key="sweep_values lwptv.prune_ratio").set_value("0, 1").run()
    at.button(key="sweep_start").click().run()
    assert len(started) == 1 and started[0][1].startswith("Prune ratio of")
    assert at.query_params["sweep"] == started[0][0]
    assert "No point is computed yet" in words(at)
    at.button(key="sweep_resume").click().run()
    assert len(started) == 2


def test_a_whole_sweep(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store")
    at = open_app("sweeps", library, sweep=found.id)
    assert not at.exception and not at.error and not at.warning
    assert charts(at) == 2
    points_of = picker(at, "chosen_point")
    assert len(points_of.options) == 6
    assert "The best point." in words(at)
    other = next(option for option in points_of.options if "·  0.5" in option and "ties" in option.casefold())
    before = metrics(at)
    points_of.select(other).run()
    assert not at.exception
    assert metrics(at) != before
    assert len(at.query_params["point"]) == 12
    specs = [chart.proto.spec for chart in at.get("plotly_chart")]
    assert all("Choosing half of each test set: at most 8 images of each of 6 tasks" in spec for spec in specs)
    assert all("sampled with seed 0" in spec and "on CPU" in spec for spec in specs)


@pytest.mark.full
def test_a_partial_sweep_can_be_looked_at_and_resumed(
    open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_library_sweep(library, tmp_path / "store", compute=3)
    at = open_app("sweeps", library, sweep=found.id)
    assert not at.exception
    assert charts(at) == 2
    assert at.button(key="sweep_resume")
    assert "3 of 6 points" in "".join(str(bar.proto) for bar in at.get("progress"))
    job = Job(name_job(SWEEP, found.id), "Sweep", State.RUNNING, kind=SWEEP, phase="Point 4 of 6, on 3 workers, 1 lost")
    monkeypatch.setattr("app.reading.sweeps.sweep_job", lambda _sweep: job)
    at.run()
    assert "computing on 3 workers, 1 lost" in "".join(str(bar.proto) for bar in at.get("progress"))


@pytest.mark.full
def test_what_the_browser_had_not_seen_yet_is_no_choice(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store", compute=1)
    at = open_app("sweeps", library, sweep=found.id)
    seen, first = at._tree, picker(at, "chosen_point").value
    picker(at, "chosen_point").set_value(first)
    run_library_sweep(library, tmp_path / "store")
    best = picker(at.run(), "chosen_point").value
    assert best != first
    at._tree = seen  # a request that was on its way while the page was drawn: it says the old value
    assert picker(at.run(), "chosen_point").value == best
    assert "point" not in at.query_params


@pytest.mark.full
def test_the_tray_shows_another_sweep_on_the_page_itself(
    open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (
        run_library_sweep(library, tmp_path / "store", 1, presets=("ties",), axes=(Axis("ties.density", values),))
        for values in ((0.1, 0.2), (0.2, 0.3))
    )
    at = open_app("sweeps", library, sweep=one.id)
    job = Job(name_job(SWEEP, other.id), "Sweep: other", State.PAUSED, kind=SWEEP, subject=other.id)
    monkeypatch.setattr(type(page_data.job_queue()), "list_jobs", lambda self: [job])
    monkeypatch.setattr(type(page_data.job_queue()), "own_jobs", lambda self: [job])
    at.run()
    at.button(key=f"show_{job.id}").click().run()
    assert picker(at, "sweep_picker").value == at.query_params["sweep"] == other.id
    at.switch_page("screens/report.py").run()
    assert [link.proto.label for link in at.get("page_link") if link.proto.query_string == f"sweep={other.id}"]


def test_recipes_and_sweeps_of_one_name_are_told_apart(open_app: Any, library: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(library)
    one = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    other = Recipe.build("task_arithmetic", {"scaling": 0.5}, (), one.pretrained, dict(one.experts), one.title)
    fewer = Recipe.build("task_arithmetic", {}, (), one.pretrained, dict(one.experts[:2]), one.title)
    said = {"axes": (Axis("alpha", (0.0, 1.0)),), "kind": LINE}
    names = sweeps.recipe_titles(Sweep(recipes=(one, other, fewer), **said))
    assert len(set(names)) == 3 and "0.5" in names[1] and names[2].endswith("(2)")
    labels = {sweeps.sweep_label(Sweep(recipes=(one,), images=images, **said)) for images in (8, 16)}
    assert len(labels) == 2


@pytest.mark.full
def test_a_report_says_what_a_sweep_was_computed_from(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store", compute=3)
    at = open_app("sweeps", library, sweep=found.id)
    at.button(key="in_report_sweep_lines").click().run()
    (source,) = at.session_state["_report_keeper"].read_draft().sources.values()
    facts, digests = dict(source.facts), dict(source.digests)
    assert facts["Points"] == "3 of 6" and facts["Seed"] == "0" and "torch" in facts["Versions"]
    benchmark = Benchmark.load(library)
    assert digests["Benchmark, sha-256"] == benchmark.digest
    assert len(digests) == 2 + len(benchmark.experts) and "pretrained, sha-256" in digests


@pytest.mark.full
def test_a_point_is_opened_as_a_run(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store", presets=("ties",), axes=(Axis("ties.density", (0.1, 0.2)),))
    at = open_app("sweeps", library, sweep=found.id)
    # the library holds the preset itself as a run, the other value has to be computed
    own, other = sorted(picker(at, "chosen_point").options, key=lambda option: not option.startswith("0.2"))
    picker(at, "chosen_point").select(own).run()
    assert "on the reporting half" in words(at)
    assert [link for link in at.get("page_link") if link.proto.label == "Open in Scores"]
    picker(at, "chosen_point").select(other).run()
    at.button(key="open_run").click().run()
    assert not at.exception
    jobs = page_data.job_queue().list_jobs()
    assert [job.title for job in jobs] == ["TIES (density 0.1)"]


@pytest.mark.full
def test_a_plane_marks_known_models(open_app: Any, library: Path, tmp_path: Path) -> None:
    axes = tuple(Axis(name, (0.0, 0.5, 1.0)) for name in ("alpha", "beta"))
    found = run_library_sweep(
        library, tmp_path / "store", presets=("task_arithmetic",), axes=axes, kind=PLANE, through=("pretrained", *PAIR)
    )
    at = open_app("sweeps", library, sweep=found.id)
    assert not at.exception and not at.error
    assert charts(at) == 2
    spec = at.get("plotly_chart")[0].proto.spec
    assert all(name in spec for name in ("Pretrained", "Expert Circles", "Expert Digits", "Merge: "))
    said = words(at)
    assert "is off the plane" in said
    assert "Is there a barrier of the loss between two models?" in said and "over the computed points" in said
    assert "n = " in said and at.button_group(key="score").options[-1] == "out-of-domain loss"
    for place, model in (("0, 0", "is the pretrained model"), ("0, 1", "is the expert Digits"), ("0.5, 0", "inter")):
        point = next(option for option in picker(at, "chosen_point").options if option.startswith(f"{place}  "))
        picker(at, "chosen_point").select(point).run()
        assert f"This point {model}" in (said := words(at)) and "so it cannot be opened as a run" in said
    averages = sweeps.sweep_results(found).averages
    table = next(frame.value for frame in at.dataframe if "n_in" in frame.value)
    assert table["loss_in"].tolist() == averages["loss_in"].round(4).tolist() and "loss_out" in table
    at.button_group(key="score").set_value("in-domain loss").run()
    assert not at.exception and "In-domain loss" in at.get("plotly_chart")[0].proto.spec


def test_a_line_through_merges_opens_their_runs(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(
        library, tmp_path / "store", presets=("task_arithmetic", "ties"), axes=(Axis("alpha", (0.0, 1.0)),), kind=LINE,
        through=("merged 2", "merged"), split="reporting",
    )  # fmt: skip
    at = open_app("sweeps", library, sweep=found.id)
    assert not at.exception and not at.error and "Line through Ties and Task Arithmetic" in words(at)
    assert "Out-of-domain loss" in at.get("plotly_chart")[0].proto.spec
    assert "No point of the sweep lies between Ties and Task Arithmetic" in words(
        at
    ) and "barrier of the loss" not in words(at)
    first = next(option for option in picker(at, "chosen_point").options if option.startswith("0  "))
    picker(at, "chosen_point").select(first).run()
    assert "Open in Scores" in [link.proto.label for link in at.get("page_link")]


def test_a_map_of_two_values(open_app: Any, library: Path, tmp_path: Path) -> None:
    axes = (Axis("lwptv.prune_ratio", (0.0, 0.5)), Axis("task_arithmetic.scaling", (0.2, 0.4)))
    found = run_library_sweep(library, tmp_path / "store", presets=("task_arithmetic_lwptv",), axes=axes)
    at = open_app("sweeps", library, sweep=found.id, score="out-of-domain")
    assert not at.exception and not at.error
    assert charts(at) == 2
    assert at.button_group(key="score").value == "out-of-domain"
    assert "as for the chosen point" in words(at)


def test_values_on_the_reporting_half_carry_a_warning(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store", presets=("ties",), axes=(Axis("ties.density", (0.1, 0.2)),),
                  split="reporting")  # fmt: skip
    at = open_app("sweeps", library, sweep=found.id)
    assert "the reported accuracy is too optimistic" in at.warning[0].value


@pytest.mark.full
def test_a_sweep_is_renamed_and_deleted(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store", presets=("ties",), axes=(Axis("ties.density", (0.1, 0.2)),))
    at = open_app("sweeps", library, sweep=found.id)
    at.text_input(key="sweep_rename").set_value("My <b>density</b>").run()
    assert picker(at, "sweep_picker").value == found.id
    store = Store(tmp_path / "store", libraries=())
    assert sweep_storage.find_sweep(store, found.id).title == "My <b>density</b>"
    at.button(key="sweep_delete").click().run()
    assert not at.exception
    assert not sweep_storage.list_sweeps(store)
    assert at.query_params["sweep"] == ["new"] or at.query_params["sweep"] == "new"


@pytest.mark.full
def test_what_a_link_asks_for_stays_when_the_page_is_drawn_again(open_app: Any, library: Path, tmp_path: Path) -> None:
    older, newer = (
        run_library_sweep(library, tmp_path / "store", presets=("ties",), axes=(Axis("ties.density", values),))
        for values in ((0.1, 0.2), (0.2, 0.3))
    )
    assert next(iter(sweep_storage.list_sweeps(Store(tmp_path / "store", libraries=())))) == newer.id
    at = open_app("sweeps", library)
    assert at.query_params["sweep"] == newer.id  # so that a link to what is shown names it
    at = open_app("sweeps", library, sweep=older.id)
    picked = picker(at, "chosen_point")
    best = picked.value
    other = next(one.name for one in sweep_compute.plan_sweep(older, Benchmark.load(library)) if one.name != best)
    at = open_app("sweeps", library, sweep=older.id, point=other)
    for _ in range(2):
        assert picker(at, "sweep_picker").value == at.query_params["sweep"] == older.id
        assert picker(at, "chosen_point").value == at.query_params["point"] == other
        at.toggle(key="presentation").set_value(True).run()  # the whole page is drawn again, as when a job ends
    at = open_app("sweeps", library, sweep="new")
    at.text_input(key="sweep_title").set_value("Mine").run()
    assert at.button(key="sweep_start")


@pytest.mark.parametrize(
    "query", [{"sweep": "0123456789ab"}, {"sweep": "../../etc/passwd"}, {"sweep": "new", "point": "x"}]
)
def test_a_bad_link(look: Any, library: Path, query: dict[str, str]) -> None:
    at = look("sweeps", library, **query)
    assert not at.exception
    assert ("which this machine does not have" in words(at)) == (query["sweep"] != "new")


def test_without_a_benchmark_the_page_says_so(open_app: Any, tmp_path: Path) -> None:
    at = open_app("sweeps", tmp_path / "nothing")
    assert not at.exception
    assert "There is no benchmark here" in at.error[0].value


@pytest.mark.full
def test_points_that_are_gone_are_missing(open_app: Any, library: Path, tmp_path: Path) -> None:
    found = run_library_sweep(library, tmp_path / "store")
    at = open_app("sweeps", library, sweep=found.id)
    store = Store(tmp_path / "store", libraries=())
    shutil.rmtree(next(points.points_folder(store).iterdir()))
    at.run()
    assert not at.exception
    assert "5 of 6 points" in "".join(str(bar.proto) for bar in at.get("progress"))


@pytest.mark.full
def test_tables_of_a_sweep_wait_only_while_its_points_are_computed(
    open_app: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_library_sweep(library, tmp_path / "store", compute=1)
    open_app("sweeps", library, sweep=found.id)
    job = Job(name_job(SWEEP, found.id), "Sweep", State.RUNNING, kind=SWEEP, subject=found.id)
    monkeypatch.setattr(sweeps, "MIN_IDLE_RATIO", 1e9)
    monkeypatch.setattr(sweeps, "sweep_job", lambda sweep: job)
    before = sweeps.sweep_results(found)
    run_library_sweep(library, tmp_path / "store")
    assert sweeps.sweep_results(found) is before and not before.complete
    monkeypatch.setattr(sweeps, "sweep_job", lambda sweep: None)
    assert sweeps.sweep_results(found).complete
